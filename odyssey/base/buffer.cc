// SPDX-License-Identifier: Apache-2.0
#include "odyssey/base/buffer.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

std::atomic<int64_t> bytes_alive{0};
std::atomic<int64_t> bytes_peak{0};

// From here on memory is asked for in huge pages: a matrix product walks many rows far apart, and
// 4 KiB pages would cost it a page walk each.
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kHugeFrom = 2 * kHugePage;

}  // namespace

int64_t buffer_bytes_alive() {
  return bytes_alive.load();
}
int64_t buffer_bytes_peak() {
  return bytes_peak.load();
}

std::byte* allocate_aligned(int64_t bytes) {
  ODYSSEY_CHECK(bytes >= 0, "{} bytes", bytes);
  if (bytes == 0) return nullptr;
  const int64_t alignment = bytes >= kHugeFrom ? kHugePage : 64;
  const int64_t rounded = (bytes + 63) / 64 * 64;
  // Unlike std::aligned_alloc it takes a size that is no multiple of the alignment.
  void* memory = nullptr;
  if (posix_memalign(&memory, static_cast<size_t>(alignment), static_cast<size_t>(rounded)) != 0) {
    throw RunError(fmt::format("out of memory: {} bytes refused", bytes));
  }
#if defined(__linux__)
  // A wish: where it is refused, all works with small pages. Whole huge pages only, so that no more
  // memory is taken than was asked for.
  if (bytes >= kHugeFrom) {
    madvise(memory, static_cast<size_t>(rounded / kHugePage * kHugePage), MADV_HUGEPAGE);
  }
#endif
  std::memset(memory, 0, static_cast<size_t>(rounded));
  const int64_t alive = bytes_alive += bytes;
  int64_t peak = bytes_peak.load();
  while (alive > peak && !bytes_peak.compare_exchange_weak(peak, alive)) {
  }
  return static_cast<std::byte*>(memory);
}

void free_aligned(std::byte* memory, int64_t bytes) noexcept {
  if (memory == nullptr) return;
  bytes_alive -= bytes;
  std::free(memory);
}

}  // namespace odyssey

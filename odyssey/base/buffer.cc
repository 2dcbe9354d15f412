// SPDX-License-Identifier: Apache-2.0
#include "odyssey/base/buffer.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "odyssey/base/error.h"

namespace odyssey {
namespace {

std::atomic<int64_t> bytes_alive{0};
std::atomic<int64_t> bytes_peak{0};

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
  const int64_t rounded = (bytes + 63) / 64 * 64;
  void* memory = std::aligned_alloc(64, static_cast<size_t>(rounded));
  if (memory == nullptr) throw RunError(fmt::format("out of memory: {} bytes refused", bytes));
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

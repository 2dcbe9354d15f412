// SPDX-License-Identifier: Apache-2.0
// Buffer<T>: owned memory, aligned to a cache line, filled with zeros. Counts what is alive, so
// that a run can report the memory it really holds beside the memory it predicted.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

namespace odyssey {

// Bytes that all Buffers of this process hold now, and the most they ever held.
int64_t buffer_bytes_alive();
int64_t buffer_bytes_peak();

// Returns zeroed memory aligned to 64 bytes; throws RunError that names the size when there is
// none.
std::byte* allocate_aligned(int64_t bytes);
void free_aligned(std::byte* memory, int64_t bytes) noexcept;

template <class T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(int64_t size)
      : data_(reinterpret_cast<T*>(allocate_aligned(size * static_cast<int64_t>(sizeof(T))))),
        size_(size) {}
  Buffer(Buffer&& other) noexcept : data_(other.data_), size_(other.size_) {
    other.data_ = nullptr;
    other.size_ = 0;
  }
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~Buffer() {
    free_aligned(reinterpret_cast<std::byte*>(data_), size_ * static_cast<int64_t>(sizeof(T)));
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  std::span<T> span() { return {data_, static_cast<size_t>(size_)}; }
  std::span<const T> span() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  T* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace odyssey

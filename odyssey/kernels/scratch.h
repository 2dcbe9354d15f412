// SPDX-License-Identifier: Apache-2.0
// Scratch<T>: memory that a kernel keeps from call to call. It grows to the largest call and stays.
#pragma once
#include "odyssey/base/buffer.h"

namespace odyssey {

// Declare it thread_local in one .cc: one rank, one scratch. Take the pointer before a parallel
// loop.
template <class T>
class Scratch {
 public:
  // Room for `size` elements, with whatever stood there before.
  T* at_least(int64_t size) {
    if (buffer_.size() < size) {
      buffer_ = Buffer<T>();  // frees first, so that both never exist at once
      buffer_ = Buffer<T>(size);
    }
    return buffer_.data();
  }

  T* data() { return buffer_.data(); }

 private:
  Buffer<T> buffer_;
};

}  // namespace odyssey

// SPDX-License-Identifier: Apache-2.0
// View<T, Rank>: a strided window on memory that somebody else owns, as std::mdspan will be.
//
// Axis letters, used in every signature of the project: B batch rows, S global length, T local
// length (Tq, Tk where they differ), H query heads, K key/value heads, D head size, E embedding
// width, F mlp width, V vocabulary, L layers, P context-parallel ranks = R (ring size) x U (Ulysses
// size).
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <type_traits>

#include "odyssey/base/error.h"

namespace odyssey {

template <class T, int Rank>
class View {
 public:
  using Extents = std::array<int64_t, Rank>;

  View() = default;
  // Row-major: the last axis is contiguous.
  View(T* data, Extents extents) : data_(data), extents_(extents) {
    int64_t stride = 1;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      strides_[axis] = stride;
      stride *= extents_[axis];
    }
  }
  View(T* data, Extents extents, Extents strides)
      : data_(data), extents_(extents), strides_(strides) {}
  // A view of T is also a view of const T.
  operator View<const T, Rank>() const requires(!std::is_const_v<T>) {
    return {data_, extents_, strides_};
  }

  T* data() const { return data_; }
  int64_t extent(int axis) const { return extents_[axis]; }
  int64_t stride(int axis) const { return strides_[axis]; }
  const Extents& extents() const { return extents_; }
  const Extents& strides() const { return strides_; }
  int64_t size() const {
    int64_t product = 1;
    for (int64_t extent : extents_) product *= extent;
    return product;
  }
  bool is_contiguous() const {
    int64_t stride = 1;
    for (int axis = Rank - 1; axis >= 0; --axis) {
      if (extents_[axis] != 1 && strides_[axis] != stride) return false;
      stride *= extents_[axis];
    }
    return true;
  }
  // The elements as one span; only for contiguous views.
  std::span<T> span() const {
    ODYSSEY_CHECK(is_contiguous(), "span of a strided view");
    return {data_, static_cast<size_t>(size())};
  }

  template <class... Index>
  T& operator()(Index... index) const {
    static_assert(sizeof...(Index) == Rank);
    const Extents indices{static_cast<int64_t>(index)...};
    int64_t offset = 0;
    for (int axis = 0; axis < Rank; ++axis) {
#ifdef ODYSSEY_CHECKED
      ODYSSEY_CHECK(indices[axis] >= 0 && indices[axis] < extents_[axis],
                    "index {} of axis {}, extent {}", indices[axis], axis, extents_[axis]);
#endif
      offset += indices[axis] * strides_[axis];
    }
    return data_[offset];
  }

  // Fixes the first axis: view[b] of [B, T, H] is [T, H].
  auto operator[](int64_t index) const requires(Rank > 1) {
    std::array<int64_t, Rank - 1> extents, strides;
    for (int axis = 1; axis < Rank; ++axis) {
      extents[axis - 1] = extents_[axis];
      strides[axis - 1] = strides_[axis];
    }
    return View<T, Rank - 1>(data_ + index * strides_[0], extents, strides);
  }
  // The part [begin, end) of one axis.
  View slice(int axis, int64_t begin, int64_t end) const {
    ODYSSEY_CHECK(0 <= begin && begin <= end && end <= extents_[axis],
                  "slice [{}, {}) of extent {}", begin, end, extents_[axis]);
    View part = *this;
    part.data_ += begin * strides_[axis];
    part.extents_[axis] = end - begin;
    return part;
  }

 private:
  T* data_ = nullptr;
  Extents extents_{};
  Extents strides_{};
};

}  // namespace odyssey

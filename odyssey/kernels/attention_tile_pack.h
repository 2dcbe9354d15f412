// SPDX-License-Identifier: Apache-2.0
// Brings rows of queries, keys and values into the forms in which the products of the attention
// tiles read them, and results back into rows. Included through attention_tile_simd.h only.
#pragma once
#include "odyssey/kernels/attention_tile.h"
#include "odyssey/kernels/attention_vector.h"

namespace odyssey {
namespace {

// Queries stand in panels of three vectors.
constexpr int64_t kPanel = 3 * kLanes;
constexpr int64_t kPanels = kQueryTile / kPanel;

ODYSSEY_INLINE float widened(float x) {
  return x;
}
ODYSSEY_INLINE float widened(uint16_t x) {
  const uint32_t word = static_cast<uint32_t>(x) << 16;
  float value;
  std::memcpy(&value, &word, sizeof(value));
  return value;
}
ODYSSEY_INLINE Vector load_whole(const float* p) {
  return load(p);
}
ODYSSEY_INLINE Vector load_whole(const uint16_t* p) {
  typedef uint16_t Halves __attribute__((vector_size(kLanes * 2)));
  Halves halves;
  std::memcpy(&halves, p, sizeof(halves));
  return of_bits(__builtin_convertvector(halves, IntVector) << 16);
}

// Rows of an operand, float or bf16 (as uint16_t), that ends after `rows` rows and `size` columns.
template <class T>
struct Operand {
  const T* data;
  int64_t stride, rows, size;

  // Columns [d, d + kLanes) of row i, zeros behind the ends.
  ODYSSEY_INLINE Vector at(int64_t i, int64_t d) const {
    if (i >= rows) return Vector{};
    const T* p = data + i * stride + d;
    if (d + kLanes <= size) return load_whole(p);
    Vector v{};
    for (int64_t lane = 0; lane < size - d; ++lane) v[lane] = widened(p[lane]);
    return v;
  }
};

// Calls body(Operand) for the storage type of the call.
template <class Body>
ODYSSEY_INLINE auto with_operand(const void* data, int64_t stride, int64_t rows,
                                 const TileOptions& o, const Body& body) {
  if (o.is_bf16) {
    return body(Operand<uint16_t>{static_cast<const uint16_t*>(data), stride, rows, o.head_size});
  }
  return body(Operand<float>{static_cast<const float*>(data), stride, rows, o.head_size});
}

// 0 in all lanes unless some x so far was NaN or infinite.
struct FiniteCheck {
  Vector sum{};
  ODYSSEY_INLINE void see(Vector x) { sum += x * 0.0f; }
  ODYSSEY_INLINE bool passed() const { return !any(sum != Vector{}); }
};

// Where element d of lane 0 of the panel with query i stands.
ODYSSEY_INLINE int64_t in_panel(int64_t i, int64_t d, int64_t padded) {
  return (i / kPanel * padded + d) * kPanel + i % kPanel;
}

// Columns of a matrix of queries as the right operand of products over queries: blocks of three
// vectors, at the end of two or one, each [96][width] and contiguous.
struct ColumnBlocks {
  int64_t vectors;  // in a row
  ODYSSEY_INLINE int64_t width(int64_t at) const {
    const int64_t left = vectors - at;
    return left == 4 ? 2 : left < 3 ? left : 3;  // 2 + 2, because one vector alone is slow
  }
};

// Rows of queries, times `factor`, to panels; with `blocks` also to column blocks. Returns whether
// all are finite.
bool load_queries(const void* data, int64_t stride, int64_t rows, const TileOptions& o,
                  float factor, float* panels, float* blocks) {
  return with_operand(data, stride, rows, o, [&](auto operand) {
    FiniteCheck check;
    const ColumnBlocks columns{o.padded / kLanes};
    // Rows may be pages apart: kLanes of them at a time.
    for (int64_t i = 0; i < kQueryTile; i += kLanes) {
      for (int64_t at = 0; at < columns.vectors; at += columns.width(at)) {
        const int64_t width = columns.width(at);
        for (int64_t v = at; v < at + width; ++v) {
          Vector x[kLanes];
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            x[lane] = factor * operand.at(i + lane, v * kLanes);
            check.see(x[lane]);
            if (blocks == nullptr) continue;
            store(blocks + (at * kQueryTile + (i + lane) * width + v - at) * kLanes, x[lane]);
          }
          transpose(x);
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            store(panels + in_panel(i, v * kLanes + lane, o.padded), x[lane]);
          }
        }
      }
    }
    return check.passed();
  });
}

// to = or += factor * panels, for the rows and columns that there are. factor: one a query.
template <bool kAdd>
void store_queries(const float* panels, const float* factor, int64_t rows, const TileOptions& o,
                   float* to, int64_t stride) {
  for (int64_t i = 0; i < rows; i += kLanes) {
    for (int64_t d = 0; d < o.head_size; d += kLanes) {
      Vector x[kLanes];
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        x[lane] = load(factor + i) * load(panels + in_panel(i, d + lane, o.padded));
      }
      transpose(x);
      const int64_t count = o.head_size - d < kLanes ? o.head_size - d : kLanes;
      for (int64_t lane = 0; lane < kLanes && i + lane < rows; ++lane) {
        float* row = to + (i + lane) * stride + d;
        if (count == kLanes) {
          store(row, kAdd ? load(row) + x[lane] : x[lane]);
        } else {
          for (int64_t c = 0; c < count; ++c) row[c] = kAdd ? row[c] + x[lane][c] : x[lane][c];
        }
      }
    }
  }
}

bool pack(const void* from, int64_t stride, int64_t rows, const TileOptions& o, float* by_key,
          float* by_element) {
  return with_operand(from, stride, rows, o, [&](auto operand) {
    FiniteCheck check;
    for (int64_t j = 0; j < kKeyTile; j += kLanes) {
      for (int64_t d = 0; d < o.padded; d += kLanes) {
        Vector x[kLanes];
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          x[lane] = operand.at(j + lane, d);
          check.see(x[lane]);
          if (by_element == nullptr) continue;
          const int64_t strip = d / kStrip * kKeyTile + j + lane;
          store(by_element + strip * kStrip + d % kStrip, x[lane]);
        }
        if (by_key == nullptr) continue;
        transpose(x);
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t strip = j / kStrip * o.padded + d + lane;
          store(by_key + strip * kStrip + j % kStrip, x[lane]);
        }
      }
    }
    return check.passed();
  });
}

}  // namespace
}  // namespace odyssey

// SPDX-License-Identifier: Apache-2.0
// The only file that sees oneDNN. All products are c (+)= a b on strided matrices; what oneDNN
// built for a shape is kept and shared by all ranks of the process.
#include "odyssey/kernels/matmul.h"

#include <algorithm>
#include <compare>
#include <map>
#include <memory>
#include <mutex>

#include <oneapi/dnnl/dnnl.hpp>

#include "odyssey/base/parallel_for.h"
#include "odyssey/kernels/isa.h"
#include "odyssey/kernels/matmul_amx.h"
#include "odyssey/kernels/scratch.h"

namespace odyssey {
namespace {

using DnnlType = dnnl::memory::data_type;

// Element (r, c) stands at data[r * row_stride + c * column_stride].
struct Matrix {
  void* data;
  int64_t rows, columns, row_stride, column_stride;
  DnnlType type;
};

template <class T>
Matrix matrix(View<T, 2> view) {
  using Element = std::remove_const_t<T>;
  check_rows_contiguous(view, "a matrix");
  const int64_t rows = view.extent(0), columns = view.extent(1);
  // The stride of an axis of one row is never used; oneDNN still wants a sensible one.
  const int64_t stride = rows > 1 ? view.stride(0) : std::max<int64_t>(columns, 1);
  ODYSSEY_CHECK(stride >= columns || rows == 0, "row stride {} of {} columns", stride, columns);
  return {const_cast<Element*>(view.data()),
          rows,
          columns,
          stride,
          1,
          std::is_same_v<Element, bf16> ? DnnlType::bf16 : DnnlType::f32};
}

Matrix transposed(const Matrix& m) {
  return {m.data, m.columns, m.rows, m.column_stride, m.row_stride, m.type};
}

// All that what oneDNN builds depends on.
struct Key {
  int64_t rows, columns, inner;
  int64_t a_row, a_column, b_row, b_column, c_row;
  DnnlType inputs, output;
  bool accumulate;
  int threads;  // oneDNN fixes the split over threads when it builds a primitive
  auto operator<=>(const Key&) const = default;
};

struct Primitive {
  dnnl::memory::desc a, b, c, scratchpad;
  dnnl::matmul matmul;
};

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::memory::desc describe(const Matrix& m) {
  return {{m.rows, m.columns}, m.type, {m.row_stride, m.column_stride}};
}

// Null where this processor has no such product.
std::shared_ptr<const Primitive> build(const Matrix& a, const Matrix& b, const Matrix& c,
                                       bool accumulate) {
  auto primitive = std::make_shared<Primitive>();
  primitive->a = describe(a);
  primitive->b = describe(b);
  primitive->c = describe(c);
  dnnl::primitive_attr attributes;
  // With memory given by the caller one primitive may run on many ranks at once.
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops add;
    add.append_sum(1.0f);
    attributes.set_post_ops(add);
  }
  try {
    const dnnl::matmul::primitive_desc description(
        dnnl::matmul::desc(primitive->a, primitive->b, primitive->c), attributes, engine());
    primitive->scratchpad = description.scratchpad_desc();
    primitive->matmul = dnnl::matmul(description);
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_unimplemented) return nullptr;
    throw;
  }
  return primitive;
}

// What was built, by shape. Emptied when it holds too much: a run has tens of shapes, not hundreds.
class Cache {
 public:
  Cache() { engine(); }  // so that the engine outlives the primitives

  std::shared_ptr<const Primitive> get(const Matrix& a, const Matrix& b, const Matrix& c,
                                       bool accumulate) {
    const Key key{c.rows,          c.columns,    a.columns,       a.row_stride,
                  a.column_stride, b.row_stride, b.column_stride, c.row_stride,
                  a.type,          c.type,       accumulate,      thread_count()};
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = primitives_.find(key); found != primitives_.end())
        return found->second;
    }
    auto primitive = build(a, b, c, accumulate);  // slow, hence outside the lock
    const std::lock_guard lock(mutex_);
    if (primitives_.size() >= kMost) primitives_.clear();
    return primitives_.emplace(key, std::move(primitive)).first->second;
  }

 private:
  static constexpr size_t kMost = 512;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Primitive>> primitives_;
};

// False where this processor has no such product.
bool try_multiply(const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate) {
  static Cache cache;
  thread_local dnnl::stream stream(engine());
  thread_local Scratch<std::byte> scratchpad;
  const auto primitive = cache.get(a, b, c, accumulate);
  if (primitive == nullptr) return false;
  std::byte* room = scratchpad.at_least(static_cast<int64_t>(primitive->scratchpad.get_size()));
  primitive->matmul.execute(stream,
                            {{DNNL_ARG_SRC, {primitive->a, engine(), a.data}},
                             {DNNL_ARG_WEIGHTS, {primitive->b, engine(), b.data}},
                             {DNNL_ARG_DST, {primitive->c, engine(), c.data}},
                             {DNNL_ARG_SCRATCHPAD, {primitive->scratchpad, engine(), room}}});
  stream.wait();
  return true;
}

// A dense fp32 copy in `room`; a transposed matrix stays a transposed one.
Matrix widen(const Matrix& m, float* room) {
  if (m.column_stride != 1) return transposed(widen(transposed(m), room));
  const bf16* from = static_cast<const bf16*>(m.data);
  parallel_ranges(m.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
#pragma omp simd
      for (int64_t c = 0; c < m.columns; ++c) {
        room[r * m.columns + c] = to_float(from[r * m.row_stride + c]);
      }
    }
  });
  return {room, m.rows, m.columns, m.columns, 1, DnnlType::f32};
}

// to (+)= from, rounded once. `from` is dense fp32.
void narrow(const float* from, const Matrix& to, bool accumulate) {
  bf16* out = static_cast<bf16*>(to.data);
  parallel_ranges(to.rows, 16, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < to.columns; ++c) {
        bf16& element = out[r * to.row_stride + c];
        const float before = accumulate ? to_float(element) : 0.0f;
        element = bf16(before + from[r * to.columns + c]);
      }
    }
  });
}

// bf16 operands on a processor without bf16 products.
bool try_multiply_widened(const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate) {
  thread_local Scratch<float> a_room, b_room, c_room;
  const Matrix a_wide = widen(a, a_room.at_least(a.rows * a.columns));
  const Matrix b_wide = widen(b, b_room.at_least(b.rows * b.columns));
  if (c.type == DnnlType::f32) return try_multiply(a_wide, b_wide, c, accumulate);
  float* sums = c_room.at_least(c.rows * c.columns);
  const Matrix c_wide{sums, c.rows, c.columns, c.columns, 1, DnnlType::f32};
  if (!try_multiply(a_wide, b_wide, c_wide, false)) return false;
  narrow(sums, c, accumulate);
  return true;
}

void fill_zero(const Matrix& m) {
  const size_t width = m.type == DnnlType::bf16 ? sizeof(bf16) : sizeof(float);
  for (int64_t r = 0; r < m.rows; ++r) {
    std::byte* row =
        static_cast<std::byte*>(m.data) + static_cast<size_t>(r * m.row_stride) * width;
    std::fill_n(row, static_cast<size_t>(m.columns) * width, std::byte{0});
  }
}

AmxOperand amx_operand(const Matrix& m) {
  const bool transposed = m.column_stride != 1;
  return {static_cast<const bf16*>(m.data), m.rows, m.columns,
          transposed ? m.column_stride : m.row_stride, transposed};
}

// False where oneDNN serves better, or there are no tiles.
bool try_multiply_amx(const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate) {
  if (a.type != DnnlType::bf16 || isa_in_use() != Isa::kAmx) return false;
  if (!amx_is_faster({c.rows, c.columns, a.columns, a.column_stride != 1})) return false;
  multiply_amx(amx_operand(a), amx_operand(b),
               {c.data, c.rows, c.columns, c.row_stride, c.type == DnnlType::bf16}, accumulate);
  return true;
}

// c (+)= a b. a [rows, inner], b [inner, columns], c [rows, columns].
void multiply(const Matrix& a, const Matrix& b, const Matrix& c, bool accumulate) {
  ODYSSEY_CHECK(a.rows == c.rows && b.columns == c.columns && a.columns == b.rows,
                "[{}, {}] times [{}, {}] into [{}, {}]", a.rows, a.columns, b.rows, b.columns,
                c.rows, c.columns);
  if (c.rows == 0 || c.columns == 0) return;
  if (a.columns == 0) {
    if (!accumulate) fill_zero(c);
    return;
  }
  if (try_multiply_amx(a, b, c, accumulate)) return;
  const auto fail = [&](const char* reason) {
    return RunError(fmt::format("matrix product [{}, {}] x [{}, {}] failed in oneDNN: {}", a.rows,
                                a.columns, b.rows, b.columns, reason));
  };
  try {
    if (try_multiply(a, b, c, accumulate)) return;
    if (a.type == DnnlType::bf16 && try_multiply_widened(a, b, c, accumulate)) return;
  } catch (const dnnl::error& error) {
    throw fail(error.what());
  }
  throw fail("not implemented on this processor");
}

}  // namespace

template <Storage T>
void linear(Input<T, 2> x, Input<T, 2> w, View<T, 2> y) {
  multiply(matrix(x), transposed(matrix(w)), matrix(y), false);
}

template <Storage T>
void linear_to_fp32(Input<T, 2> x, Input<T, 2> w, View<float, 2> y) {
  multiply(matrix(x), transposed(matrix(w)), matrix(y), false);
}

template <Storage T>
void linear_backward_input(Input<T, 2> dy, Input<T, 2> w, View<T, 2> dx, bool accumulate) {
  multiply(matrix(dy), matrix(w), matrix(dx), accumulate);
}

template <Storage T>
void linear_backward_weight(Input<T, 2> dy, Input<T, 2> x, View<float, 2> dw, bool accumulate) {
  multiply(transposed(matrix(dy)), matrix(x), matrix(dw), accumulate);
}

template <Storage T>
int64_t linear_scratch_bytes(int64_t tokens, int64_t inputs, int64_t outputs) {
  if (std::is_same_v<T, float> || isa_in_use() != Isa::kAmx) return 0;
  int64_t most = 0;
  for (const AmxShape& shape :
       {AmxShape{tokens, outputs, inputs, false}, AmxShape{tokens, inputs, outputs, false},
        AmxShape{outputs, inputs, tokens, true}}) {
    if (amx_is_faster(shape)) most = std::max(most, amx_scratch_bytes(shape));
  }
  return most;
}

template int64_t linear_scratch_bytes<float>(int64_t, int64_t, int64_t);
template int64_t linear_scratch_bytes<bf16>(int64_t, int64_t, int64_t);
template void linear<float>(Input<float, 2>, Input<float, 2>, View<float, 2>);
template void linear<bf16>(Input<bf16, 2>, Input<bf16, 2>, View<bf16, 2>);
template void linear_to_fp32<float>(Input<float, 2>, Input<float, 2>, View<float, 2>);
template void linear_to_fp32<bf16>(Input<bf16, 2>, Input<bf16, 2>, View<float, 2>);
template void linear_backward_input<float>(Input<float, 2>, Input<float, 2>, View<float, 2>, bool);
template void linear_backward_input<bf16>(Input<bf16, 2>, Input<bf16, 2>, View<bf16, 2>, bool);
template void linear_backward_weight<float>(Input<float, 2>, Input<float, 2>, View<float, 2>, bool);
template void linear_backward_weight<bf16>(Input<bf16, 2>, Input<bf16, 2>, View<float, 2>, bool);

}  // namespace odyssey

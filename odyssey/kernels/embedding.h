// SPDX-License-Identifier: Apache-2.0
// Rows of the embedding table by token, and the way back.
#pragma once
#include <cstdint>

#include "odyssey/kernels/input.h"

namespace odyssey {

// out[t] = scale * table[tokens[t]]. table [V, E], tokens [T], out [T, E].
// Throws UserError that names the index of a token outside [0, V); nothing is written then.
template <Storage T>
void embedding(Input<T, 2> table, std::span<const int32_t> tokens, float scale, View<T, 2> out);

// d_table[tokens[t]] += scale * dout[t], tokens in order: the same bits at any number of threads.
// dout [T, E], d_table [V, E] fp32. Name T: embedding_backward<bf16>(...). Throws as above.
template <Storage T>
void embedding_backward(Input<T, 2> dout, std::span<const int32_t> tokens, float scale,
                        View<float, 2> d_table);

}  // namespace odyssey

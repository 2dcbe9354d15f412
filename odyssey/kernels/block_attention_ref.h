// SPDX-License-Identifier: Apache-2.0
// The plain block attention: a loop over heads, queries and keys that follows the definition. It is
// the oracle of the fast kernels, the fallback (ODYSSEY_MAX_ISA=ref), and their documentation.
#pragma once
#include "odyssey/kernels/attention_rows.h"
#include "odyssey/kernels/block_attention.h"

namespace odyssey::reference {

template <class T>
void attend(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v, const AttentionRows& rows,
            const AttentionOptions& options, const AttentionState& state);

template <class T>
void attend_backward(View<const T, 3> q, View<const T, 3> k, View<const T, 3> v,
                     View<const T, 3> dout, View<const float, 2> lse, View<const float, 2> delta,
                     const AttentionRows& rows, const AttentionOptions& options, View<float, 3> dq,
                     View<float, 3> dk, View<float, 3> dv);

}  // namespace odyssey::reference

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files that are compiled with instruction-set flags may give the linker nothing but their kernels: an
# inline library function in such a file could become the one copy that the whole program uses, and would then end
# it with an illegal instruction on older machines.
#   isa_symbols.sh OBJECT...   looks at the tiles, the AMX kernels, the row kernels and the peak loops among them
set -euo pipefail
count=0
faults=0
for object in "$@"; do
  case $object in
    *attention_tile_*) own=' [DR] odyssey::kAttentionTiles[A-Za-z0-9]*$' ;;
    *attention_pack_amx*|*attention_forward_amx*|*attention_backward_amx*) own=' T odyssey::amx::[a-z_]*(' ;;
    *matmul_tile_amx*) own=' [DR] odyssey::kMatmulTilesAmx$' ;;
    *row_kernels_*) own=' [DR] odyssey::kRowKernels[A-Za-z0-9]*$' ;;
    *peak_*) own=' T odyssey::[a-z0-9]*_peak_loop(void const\*, void\*)$' ;;
    *) continue ;;
  esac
  count=$((count + 1))
  if ! symbols=$(nm --extern-only --defined-only --demangle "$object"); then
    faults=$((faults + 1))
    continue
  fi
  if foreign=$(grep -v "$own" <<<"$symbols"); then
    printf '%s defines more than its kernels:\n%s\n' "$object" "$foreign"
    faults=$((faults + 1))
  fi
done
echo "$count objects, $faults with faults"
[ "$count" -gt 0 ] && [ "$faults" -eq 0 ]

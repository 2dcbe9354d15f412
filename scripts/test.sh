#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds everything with warnings as errors and runs all tests and checks. Words go on to ctest:
#   test.sh                    all of it
#   test.sh -L unit            one label (docs/testing.md)
#   test.sh --sanitizers       also under the address, undefined-behaviour and thread sanitizers
set -euo pipefail
cd "$(dirname "$0")/.."

sanitizers=false
if [ "${1:-}" = --sanitizers ]; then
  sanitizers=true
  shift
fi
jobs=$(nproc)

# build PRESET: prints the log only when it fails.
build() {
  local log=build/$1.log
  mkdir -p build
  echo "Building preset $1"
  { cmake --preset "$1" -DODYSSEY_TESTS=ON -DODYSSEY_WERROR=ON && cmake --build --preset "$1" -j "$jobs"; } \
    >"$log" 2>&1 || { cat "$log" >&2; exit 1; }
}

# run PRESET [CTEST ARGUMENTS]
run() {
  ctest --test-dir "build/$1" --output-on-failure -j "$jobs" "${@:2}"
}

./scripts/install_packages.sh run test check
build release
if ! $sanitizers; then
  run release "$@"
  exit
fi
run release "$@" | tee build/release_tests.log
build asan-ubsan
# Sanitizers make the large grids of the kernels take a quarter of an hour: the cases of every kind stay, on small
# shapes; the whole model exercises the rest. The parity table is the release build's.
# The library that makes sends synchronous is preloaded, which the sanitizer's own has to be. Resident memory is the
# sanitizer's too.
run asan-ubsan -LE 'check|parity|isa' -E '^matmul_test|synchronous|plan_memory' "$@"
GTEST_FILTER='*Sinks*:*SoftCap*:*SeeNothing*:*HeadRanges*:*FarApart*:*WindowOfOne*:*Fresh*:*ScoresThat*:MatmulAmx.*Rounding' \
  run asan-ubsan -R '^(block_attention_test|matmul_test)$'
build tsan
# Watched threads take minutes for the largest grids; smaller ones take the same paths.
GTEST_FILTER='-*SixtyFourRanks*:*EqualsDenseForEvery*:*MemoryNeed*' \
  run tsan -L ranks -E 'decoder_test|bench_|check_command|calibrate' "$@"
echo "Preset release:"
grep 'tests passed' build/release_tests.log

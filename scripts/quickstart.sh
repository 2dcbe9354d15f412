#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# From a fresh clone to a trained model: installs what is missing, builds the program, trains configs/tiny.yml on
# 8 thread ranks. Words go on to the trainer: quickstart.sh steps=10. Safe to run twice.
set -euo pipefail
cd "$(dirname "$0")/.."

./scripts/install_packages.sh run
log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "Building build/release/odyssey (the first time takes minutes)"
{ cmake --preset release -DODYSSEY_TESTS=OFF &&
  cmake --build --preset release --target odyssey -j "$(nproc)"; } >"$log" 2>&1 || { cat "$log" >&2; exit 1; }

build/release/odyssey train configs/tiny.yml "$@"

echo
echo "Next: the same losses from another layout: build/release/odyssey train configs/tiny.yml context_parallel_strategy=ring ici_context_parallelism=8 ici_context_usp_ulysses_parallelism=1"
echo "Or prove on this machine that a layout equals dense attention: build/release/odyssey check configs/tiny.yml"

#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs clang-tidy (.clang-tidy) over the sources of a configured build folder.
#   tidy.sh BUILD_FOLDER           all but the tests
#   tidy.sh BUILD_FOLDER FILE...   these only
# Exit code 77 (ctest: skipped) where clang-tidy is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v clang-tidy >/dev/null || { echo "no clang-tidy here: scripts/install_packages.sh check"; exit 77; }
[ -f "${1:?usage: tidy.sh BUILD_FOLDER [FILE...]}/compile_commands.json" ] ||
  { echo "no $1/compile_commands.json: configure with a preset first" >&2; exit 1; }
build=$1
shift
if [ $# -gt 0 ]; then
  files=("$@")
else
  mapfile -t files < <(find odyssey apps examples -name '*.cc' ! -name '*_test.cc' ! -name '*_cases.cc' ! -name 'no_mpi.cc' | sort)
fi
# GCC's warning flags mean nothing to clang; the compiler itself has been asked already.
printf '%s\0' "${files[@]}" |
  xargs -0 -n 1 -P "$(nproc)" clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option 2>/dev/null

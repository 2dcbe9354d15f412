#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that clang-format would change nothing. With --fix it changes what it must.
# Exit code 77 (ctest: skipped) where clang-format is missing.
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v clang-format >/dev/null || { echo "no clang-format here: scripts/install_packages.sh check"; exit 77; }
mode=(--dry-run --Werror)
[ "${1:-}" = --fix ] && mode=(-i)
find . \( -path ./build -o -path ./.git \) -prune -o \( -name '*.h' -o -name '*.cc' \) -print0 |
  xargs -0 -r clang-format "${mode[@]}"

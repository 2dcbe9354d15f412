#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures a small project that adds Odyssey as a subfolder, with and without MPI: it must get libraries and
# neither tests nor -Werror.
#   subproject.sh CMAKE FOLDER
set -euo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
cmake=$1
folder=$2
mkdir -p "$folder"
cat >"$folder/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(consumer LANGUAGES CXX)
add_subdirectory("$source" odyssey)
file(WRITE "\${CMAKE_BINARY_DIR}/empty.cc" "")
add_library(consumer "\${CMAKE_BINARY_DIR}/empty.cc")
target_link_libraries(consumer PRIVATE odyssey_context)
END
for mpi in ON OFF; do
  "$cmake" -G Ninja -S "$folder" -B "$folder/mpi_$mpi" -DODYSSEY_MPI=$mpi >"$folder/log" 2>&1 ||
    { cat "$folder/log"; exit 1; }
  if grep -q -e -Werror -e _test.dir "$folder/mpi_$mpi/build.ninja"; then
    echo "a consumer gets -Werror or tests"
    exit 1
  fi
done
grep -q 'No MPI in this build' "$folder/log"

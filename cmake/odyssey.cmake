# SPDX-License-Identifier: Apache-2.0
# The two functions that every CMakeLists.txt of the tree uses, and the flags of all code.

add_library(odyssey_flags INTERFACE)
target_include_directories(odyssey_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(odyssey_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wno-psabi)
if(ODYSSEY_WERROR)
  target_compile_options(odyssey_flags INTERFACE -Werror)
endif()
if(ODYSSEY_CHECKED)
  target_compile_definitions(odyssey_flags INTERFACE ODYSSEY_CHECKED=1 _GLIBCXX_ASSERTIONS=1)
endif()
if(ODYSSEY_SANITIZE)
  target_compile_options(odyssey_flags INTERFACE -fsanitize=${ODYSSEY_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(odyssey_flags INTERFACE -fsanitize=${ODYSSEY_SANITIZE})
  # GCC 12 reports false positives of these two under sanitizers.
  target_compile_options(odyssey_flags INTERFACE -Wno-maybe-uninitialized -Wno-array-bounds)
  if(ODYSSEY_SANITIZE MATCHES "undefined")
    # Undefined behaviour ends the test; by default it would only be printed.
    target_compile_options(odyssey_flags INTERFACE -fno-sanitize-recover=undefined)
  endif()
endif()

# odyssey_library(base SOURCES a.cc b.cc DEPENDS sequence PRIVATE fmt::fmt)
# Makes odyssey_<folder>; DEPENDS names folders to the left, PRIVATE names outside libraries.
function(odyssey_library name)
  cmake_parse_arguments(A "" "" "SOURCES;DEPENDS;PRIVATE" ${ARGN})
  add_library(odyssey_${name} STATIC ${A_SOURCES})
  target_link_libraries(odyssey_${name} PUBLIC odyssey_flags OpenMP::OpenMP_CXX)
  foreach(dependency ${A_DEPENDS})
    target_link_libraries(odyssey_${name} PUBLIC odyssey_${dependency})
  endforeach()
  target_link_libraries(odyssey_${name} PRIVATE ${A_PRIVATE})
endfunction()

# What MPI needs to start as root and with more ranks than cores; one OpenMP thread a rank. Open MPI itself leaks
# at exit. libgomp is not built for the thread sanitizer: see the file of suppressions.
set(ODYSSEY_TEST_ENVIRONMENT
    OMP_NUM_THREADS=1
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    OMPI_MCA_rmaps_base_oversubscribe=1
    OMPI_MCA_mpi_yield_when_idle=1
    ASAN_OPTIONS=detect_leaks=0
    TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/scripts/tsan_suppressions.txt)

if(ODYSSEY_TESTS)
  # All tests with the label ranks: what the thread sanitizer is for.
  add_custom_target(rank_tests)
endif()

# odyssey_test(placement_test SOURCES placement_test.cc DEPENDS sequence LABELS unit)
# A GoogleTest binary, one ctest entry a binary: starting a process per case costs more than the case.
# With MPI_RANKS 2 4 the binary runs under mpirun once per count and has a main of its own (left out where MPI was
# not found).
function(odyssey_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;DEPENDS;PRIVATE;LABELS;MPI_RANKS" ${ARGN})
  if(NOT ODYSSEY_TESTS OR (A_MPI_RANKS AND NOT MPI_CXX_FOUND))
    return()
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  if(ODYSSEY_SANITIZE)
    math(EXPR A_TIMEOUT "10 * ${A_TIMEOUT}")
  endif()
  if(NOT A_LABELS)
    set(A_LABELS unit)
  endif()
  add_executable(${name} ${A_SOURCES})
  list(TRANSFORM A_DEPENDS PREPEND odyssey_)
  target_link_libraries(${name} PRIVATE ${A_DEPENDS} ${A_PRIVATE} GTest::gmock)

  set(entries)
  if(A_MPI_RANKS)
    target_link_libraries(${name} PRIVATE GTest::gtest)
    set(A_LABELS mpi)
    foreach(ranks ${A_MPI_RANKS})
      add_test(NAME ${name}_mpi${ranks} COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} $<TARGET_FILE:${name}>
               WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
      list(APPEND entries ${name}_mpi${ranks})
    endforeach()
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set(entries ${name})
  endif()
  set_tests_properties(${entries} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT}
                       ENVIRONMENT "${ODYSSEY_TEST_ENVIRONMENT}")
  if(A_LABELS MATCHES "ranks|mpi")
    # Many ranks at once: `ctest -j2` runs nothing beside them on two cores.
    set_tests_properties(${entries} PROPERTIES PROCESSORS 2)
  endif()
  if(A_LABELS MATCHES "ranks")
    add_dependencies(rank_tests ${name})
  endif()
endfunction()

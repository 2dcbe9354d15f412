# SPDX-License-Identifier: Apache-2.0
# The three functions that every CMakeLists.txt of the tree uses.

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

# What MPI needs to start as root and with more ranks than cores; one OpenMP thread a rank.
set(ODYSSEY_TEST_ENVIRONMENT
    "OMP_NUM_THREADS=1;OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_rmaps_base_oversubscribe=1;OMPI_MCA_mpi_yield_when_idle=1;ASAN_OPTIONS=detect_leaks=0"
)

# odyssey_test(placement_test SOURCES placement_test.cc DEPENDS sequence LABELS unit)
# A GoogleTest binary, one ctest entry a binary: starting a process per case costs more than the case.
# With MPI_RANKS 2 4 the binary runs under mpirun once per count (left out where MPI was not found).
function(odyssey_test name)
  cmake_parse_arguments(A "" "TIMEOUT" "SOURCES;DEPENDS;PRIVATE;LABELS;MPI_RANKS" ${ARGN})
  if(NOT ODYSSEY_TESTS)
    return()
  endif()
  if(NOT A_TIMEOUT)
    set(A_TIMEOUT 300)
  endif()
  if(NOT A_LABELS)
    set(A_LABELS unit)
  endif()
  add_executable(${name} ${A_SOURCES})
  foreach(dependency ${A_DEPENDS})
    target_link_libraries(${name} PRIVATE odyssey_${dependency})
  endforeach()
  target_link_libraries(${name} PRIVATE ${A_PRIVATE} GTest::gmock)
  if(A_MPI_RANKS)
    target_link_libraries(${name} PRIVATE GTest::gtest)
  else()
    target_link_libraries(${name} PRIVATE GTest::gtest_main)
  endif()
  if(A_MPI_RANKS)
    if(MPI_CXX_FOUND)
      foreach(ranks ${A_MPI_RANKS})
        add_test(NAME ${name}_mpi${ranks} COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} $<TARGET_FILE:${name}>
                 WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
        set_tests_properties(${name}_mpi${ranks} PROPERTIES LABELS mpi TIMEOUT ${A_TIMEOUT} PROCESSORS 2
                             ENVIRONMENT "${ODYSSEY_TEST_ENVIRONMENT}")
      endforeach()
    endif()
  else()
    add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${name} PROPERTIES LABELS "${A_LABELS}" TIMEOUT ${A_TIMEOUT}
                         ENVIRONMENT "${ODYSSEY_TEST_ENVIRONMENT}")
  endif()
endfunction()

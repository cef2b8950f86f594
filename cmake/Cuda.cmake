# The CUDA backend, where a compiler for its kernels works: echelon_cuda_kernels, and the plugin
# echelon_cuda that plan-run loads. Nothing else of a build depends on them.
if(ECHELON_CUDA STREQUAL "DEFAULT")
  set(ECHELON_CUDA ${BUILD_TESTING})  # of this run of CMake; the cache keeps the question
endif()
if(NOT ECHELON_CUDA)
  return()
endif()
include(CheckLanguage)

# An nvcc that is a wrapper of something gone makes CMake's own probe fatal: ask it first.
find_program(ECHELON_NVCC nvcc HINTS ${CUDAToolkit_ROOT} ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda
             PATH_SUFFIXES bin)
mark_as_advanced(ECHELON_NVCC)
set(found FALSE)
if(ECHELON_NVCC)
  execute_process(COMMAND ${ECHELON_NVCC} --version RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed EQUAL 0)
    set(found TRUE)
  endif()
endif()
# Before the language is enabled, or nvcc's own default is taken: machine code for A100 and H100 or
# H200, and PTX for what comes after them.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
if(found)
  if(NOT CMAKE_CUDA_COMPILER)
    set(ENV{CUDACXX} ${ECHELON_NVCC})
    check_language(CUDA)  # compiles something
  endif()
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
  endif()
endif()
if(NOT found OR NOT CMAKE_CUDA_COMPILER OR CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.0)
  message(STATUS "runtime/cuda/ is not built: install the CUDA toolkit, 12.0 or newer")
  return()
endif()
if(NOT DEFINED CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  # CMake 3.25.1 lacks the entry; 3.25.2 has it.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
add_subdirectory(runtime/cuda)

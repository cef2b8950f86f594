# Measures against the time of the first ./plan and ./test; all leave the meaning of the code alone.

# Where the time of an answer goes is optimised as a release is. All else (reading files, writing text,
# parsing arguments, tests) is never where it goes, but compiling it would be: JSON, {fmt}, CLI11 and
# Catch2 are all templates. A release build optimises such sources lightly, which takes half as long.
set(ECHELON_COLD $<$<CONFIG:Release>:-Og>)
# Tests that emulate a GPU, or run under ThreadSanitizer, execute more than they compile.
set(ECHELON_EMULATION $<$<CONFIG:Release>:-O1>)
# GCC frees memory that it could keep: a tenth of its time.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=262144>)
endif()

# echelon_together(TARGET [HOT REGEX] [LIGHT OPTIONS]): the last word on how TARGET is compiled. With
# ECHELON_UNITY, at most that many of its sources together (CMake's unity build), so that a library's
# headers are read, and its templates compiled, once for all of them. Sources that match HOT, and are not
# *_io.cpp, are optimised; all others lightly (LIGHT; else ECHELON_COLD). A unity source is one source to
# the compiler, so names in anonymous namespaces must differ within a folder; a source that cannot keep to
# that sets the property SKIP_UNITY_BUILD_INCLUSION (docs/decisions/0010 on unique ids).
function(echelon_together target)
  cmake_parse_arguments(PARSE_ARGV 1 given "" "HOT;LIGHT" "")
  if(NOT given_LIGHT)
    set(given_LIGHT "${ECHELON_COLD}")
  endif()
  if(given_HOT)
    get_target_property(cold ${target} SOURCES)
    set(hot ${cold})
    list(FILTER hot INCLUDE REGEX "${given_HOT}")
    list(FILTER hot EXCLUDE REGEX "_io[.]cpp$")
    list(REMOVE_ITEM cold ${hot})
    add_library(${target}_hot OBJECT ${hot})
    foreach(property INCLUDE_DIRECTORIES COMPILE_DEFINITIONS COMPILE_OPTIONS LINK_LIBRARIES)
      get_target_property(value ${target} ${property})
      if(value)
        set_property(TARGET ${target}_hot PROPERTY ${property} "${value}")
      endif()
    endforeach()
    set_property(TARGET ${target} PROPERTY SOURCES ${cold} $<TARGET_OBJECTS:${target}_hot>)
    echelon_unity(${target}_hot)
  endif()
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${given_LIGHT}>)
  echelon_unity(${target})
endfunction()

function(echelon_unity target)
  if(NOT ECHELON_UNITY)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${ECHELON_UNITY})
  # GCC takes included sources for headers, in which an anonymous type as a member would be a fault.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)
  endif()
endfunction()

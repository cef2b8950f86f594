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

# echelon_together(TARGET [HOT REGEX] [LIGHT OPTIONS]): with ECHELON_UNITY, compiles the sources of TARGET in groups of
# at most that many, so that a library's headers are read, and its templates compiled, once per group.
# Sources that match HOT, and are not *_io.cpp, are optimised; all others lightly (LIGHT; else
# ECHELON_COLD). A source in two targets of a folder is grouped in both or in neither. Names in anonymous
# namespaces must differ within a folder; a source that cannot keep to that sets the property
# SKIP_UNITY_BUILD_INCLUSION.
function(echelon_together target)
  cmake_parse_arguments(PARSE_ARGV 1 given "" "HOT;LIGHT" "")
  if(NOT given_LIGHT)
    set(given_LIGHT "${ECHELON_COLD}")
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX "[.]cpp$")
  set(hot "")
  if(given_HOT)
    set(hot ${sources})
    list(FILTER hot INCLUDE REGEX "${given_HOT}")
    list(FILTER hot EXCLUDE REGEX "_io[.]cpp$")
  endif()
  set(cold ${sources})
  list(REMOVE_ITEM cold ${hot} "")
  foreach(kind hot cold)
    set(options "")
    if(kind STREQUAL "cold")
      set(options "${given_LIGHT}")
    endif()
    set(grouped "")
    foreach(source ${${kind}})
      get_source_file_property(alone ${source} TARGET_DIRECTORY ${target}
                               SKIP_UNITY_BUILD_INCLUSION)
      string(FIND ${source} ${PROJECT_BINARY_DIR} generated)
      if(NOT ECHELON_UNITY OR alone OR generated EQUAL 0)
        set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY COMPILE_OPTIONS "${options}")
      else()
        set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY HEADER_FILE_ONLY ON)
        list(APPEND grouped ${source})
      endif()
    endforeach()
    echelon_groups(${target} ${kind} "${options}" "${grouped}")
  endforeach()
endfunction()

# Groups of about equal length, none longer than ECHELON_UNITY.
function(echelon_groups target kind options sources)
  list(LENGTH sources left)
  if(left EQUAL 0)
    return()
  endif()
  math(EXPR groups "(${left} + ${ECHELON_UNITY} - 1) / ${ECHELON_UNITY}")
  math(EXPR last "${groups} - 1")
  set(from 0)
  foreach(number RANGE ${last})
    math(EXPR length "(${left} + ${groups} - ${number} - 1) / (${groups} - ${number})")
    list(SUBLIST sources ${from} ${length} group)
    echelon_group(${target} ${kind}_${number} "${options}" ${group})
    math(EXPR from "${from} + ${length}")
    math(EXPR left "${left} - ${length}")
  endforeach()
endfunction()

# One generated source that includes the others.
function(echelon_group target name options)
  set(file ${PROJECT_BINARY_DIR}/together/${target}_${name}.cpp)
  set(text "")
  foreach(source ${ARGN})
    get_filename_component(source ${source} ABSOLUTE)
    file(RELATIVE_PATH source ${PROJECT_SOURCE_DIR} ${source})
    string(APPEND text "#include \"${source}\"\n")
  endforeach()
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY) # leaves the file alone when it is the same
  target_sources(${target} PRIVATE ${file})
  # GCC takes included sources for headers, in which an anonymous type as a member would be a fault.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    list(APPEND options -Wno-subobject-linkage)
  endif()
  set_property(SOURCE ${file} TARGET_DIRECTORY ${target} PROPERTY COMPILE_OPTIONS "${options}")
endfunction()

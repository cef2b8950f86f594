# Two measures against the time of the first ./plan; both leave the meaning of the code alone.

# Reading files and writing text is never where the time goes, but compiling it is: JSON, {fmt}, CLI11
# and Catch2 are all templates. A release build optimises such sources lightly.
set(ECHELON_COLD $<$<CONFIG:Release>:-O1>)

# echelon_together(TARGET [ALL_COLD]): with ECHELON_UNITY, compiles the sources of TARGET in groups, so
# that a library's headers are read once per group. Files *_io.cpp, or all, are cold. Names in
# anonymous namespaces must then differ within a folder; a source that cannot keep to that sets the
# property SKIP_UNITY_BUILD_INCLUSION.
function(echelon_together target)
  get_target_property(sources ${target} SOURCES)
  set(hot ${sources})
  list(FILTER hot INCLUDE REGEX "[.]cpp$")
  set(cold ${hot})
  if(NOT "ALL_COLD" IN_LIST ARGN)
    list(FILTER cold INCLUDE REGEX "_io[.]cpp$")
  endif()
  list(REMOVE_ITEM hot ${cold} "")
  foreach(kind hot cold)
    set(options "")
    if(kind STREQUAL "cold")
      set(options "${ECHELON_COLD}")
    endif()
    set(group "")
    set(number 0)
    foreach(source ${${kind}})
      get_source_file_property(alone ${source} TARGET_DIRECTORY ${target}
                               SKIP_UNITY_BUILD_INCLUSION)
      string(FIND ${source} ${PROJECT_BINARY_DIR} generated)
      if(NOT ECHELON_UNITY OR alone OR generated EQUAL 0)
        set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY COMPILE_OPTIONS "${options}")
        continue()
      endif()
      set_property(SOURCE ${source} TARGET_DIRECTORY ${target} PROPERTY HEADER_FILE_ONLY ON)
      list(APPEND group ${source})
      list(LENGTH group length)
      if(length EQUAL ECHELON_UNITY)
        echelon_group(${target} ${kind}_${number} "${options}" ${group})
        set(group "")
        math(EXPR number "${number} + 1")
      endif()
    endforeach()
    if(group)
      echelon_group(${target} ${kind}_${number} "${options}" ${group})
    endif()
  endforeach()
endfunction()

# One generated source that includes the others.
function(echelon_group target name options)
  set(file ${PROJECT_BINARY_DIR}/together/${target}_${name}.cpp)
  set(text "")
  foreach(source ${ARGN})
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

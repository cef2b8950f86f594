# Reading files and writing text is never where the time goes, but compiling it is: JSON, {fmt}, CLI11
# and Catch2 are all templates. In a release build these sources are optimised lightly, which takes a
# quarter off the first ./plan and half off the tests.
set(ECHELON_COLD $<$<CONFIG:Release>:-O1>)

# echelon_cold(TARGET [PATTERN]): all sources of TARGET, or those that match the pattern.
function(echelon_cold target)
  if(ARGC EQUAL 1)
    target_compile_options(${target} PRIVATE ${ECHELON_COLD})
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources INCLUDE REGEX ${ARGV1})
  if(sources)
    set_source_files_properties(${sources} TARGET_DIRECTORY ${target}
                                PROPERTIES COMPILE_OPTIONS "${ECHELON_COLD}")
  endif()
endfunction()

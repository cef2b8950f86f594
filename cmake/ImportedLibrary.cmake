# echelon_imported(NAME TARGET HEADER LIBRARY PACKAGE): finds a C library without a CMake package of
# its own, for a Find module: HEADER and, unless "", LIBRARY, which the Debian package PACKAGE holds,
# as the imported TARGET. A macro, so that NAME_FOUND reaches find_package().
include(FindPackageHandleStandardArgs)
macro(echelon_imported name target header library package)
  set(_needed ${name}_INCLUDE_DIR)
  find_path(${name}_INCLUDE_DIR ${header})
  if(NOT "${library}" STREQUAL "")
    set(_needed ${name}_LIBRARY ${name}_INCLUDE_DIR)
    find_library(${name}_LIBRARY ${library})
  endif()
  find_package_handle_standard_args(${name} REQUIRED_VARS ${_needed}
                                            REASON_FAILURE_MESSAGE "install ${package}")
  if(${name}_FOUND AND NOT TARGET ${target})
    add_library(${target} INTERFACE IMPORTED)
    target_include_directories(${target} SYSTEM INTERFACE ${${name}_INCLUDE_DIR})
    target_link_libraries(${target} INTERFACE ${${name}_LIBRARY})
  endif()
  mark_as_advanced(${_needed})
endmacro()

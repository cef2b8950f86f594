# Finds xxHash's header (Debian: libxxhash-dev), which is all of it, as the target xxhash::xxhash.
find_path(Xxhash_INCLUDE_DIR xxhash.h)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Xxhash REQUIRED_VARS Xxhash_INCLUDE_DIR REASON_FAILURE_MESSAGE "install libxxhash-dev")
if(Xxhash_FOUND AND NOT TARGET xxhash::xxhash)
  add_library(xxhash::xxhash INTERFACE IMPORTED)
  set_target_properties(xxhash::xxhash PROPERTIES INTERFACE_INCLUDE_DIRECTORIES
                                                  ${Xxhash_INCLUDE_DIR})
endif()
mark_as_advanced(Xxhash_INCLUDE_DIR)

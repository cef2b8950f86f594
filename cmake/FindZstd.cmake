# Finds libzstd (Debian: libzstd-dev), as the target zstd::zstd.
find_path(Zstd_INCLUDE_DIR zstd.h)
find_library(Zstd_LIBRARY zstd)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Zstd REQUIRED_VARS Zstd_LIBRARY Zstd_INCLUDE_DIR REASON_FAILURE_MESSAGE "install libzstd-dev")
if(Zstd_FOUND AND NOT TARGET zstd::zstd)
  add_library(zstd::zstd UNKNOWN IMPORTED)
  set_target_properties(zstd::zstd PROPERTIES IMPORTED_LOCATION ${Zstd_LIBRARY}
                                              INTERFACE_INCLUDE_DIRECTORIES ${Zstd_INCLUDE_DIR})
endif()
mark_as_advanced(Zstd_INCLUDE_DIR Zstd_LIBRARY)

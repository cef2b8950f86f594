# Finds libcsv, the C reader of RFC 4180 tables (Debian: libcsv-dev), as the target csv::csv.
find_path(Csv_INCLUDE_DIR csv.h)
find_library(Csv_LIBRARY csv)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Csv REQUIRED_VARS Csv_LIBRARY Csv_INCLUDE_DIR REASON_FAILURE_MESSAGE "install libcsv-dev")
if(Csv_FOUND AND NOT TARGET csv::csv)
  add_library(csv::csv UNKNOWN IMPORTED)
  set_target_properties(csv::csv PROPERTIES IMPORTED_LOCATION ${Csv_LIBRARY}
                                            INTERFACE_INCLUDE_DIRECTORIES ${Csv_INCLUDE_DIR})
endif()
mark_as_advanced(Csv_INCLUDE_DIR Csv_LIBRARY)

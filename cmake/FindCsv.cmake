# libcsv, the C reader of RFC 4180 tables, as the target csv::csv.
include(${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake)
echelon_imported(Csv csv::csv csv.h csv libcsv-dev)

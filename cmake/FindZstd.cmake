# libzstd, as the target zstd::zstd.
include(${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake)
echelon_imported(Zstd zstd::zstd zstd.h zstd libzstd-dev)

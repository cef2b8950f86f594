# xxHash's header, which is all of it, as the target xxhash::xxhash.
include(${CMAKE_CURRENT_LIST_DIR}/ImportedLibrary.cmake)
echelon_imported(Xxhash xxhash::xxhash xxhash.h "" libxxhash-dev)

# A test that stands for others that were not built: cmake -DNAME=... -DREASON=... -P skip.cmake
message("SKIPPED: ${NAME}: ${REASON}")
if(DEFINED ENV{ECHELON_SKIP_LOG})
  file(APPEND $ENV{ECHELON_SKIP_LOG} "${NAME}: ${REASON}\n")
endif()

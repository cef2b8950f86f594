# echelon_version: a library that knows version, commit and build options. The tree includes it as
# "core/version.hpp". Only what prints the commit links it, so that a new commit relinks nothing
# else; the commit is read again when git's HEAD or branch moves, not on every build.
set(generated ${PROJECT_BINARY_DIR}/generated/core)

string(CONCAT ECHELON_BUILD_OPTIONS
  "${CMAKE_BUILD_TYPE}, ${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}"
  ", ${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}")
if(ECHELON_SANITIZE)
  string(APPEND ECHELON_BUILD_OPTIONS ", sanitizers: ${ECHELON_SANITIZE}")
endif()
string(APPEND ECHELON_BUILD_OPTIONS
  ", libraries: Boost ${Boost_VERSION}, CLI11 ${CLI11_VERSION}, Eigen ${Eigen3_VERSION}"
  ", fmt ${fmt_VERSION}, nlohmann-json ${nlohmann_json_VERSION}")

configure_file(cmake/version.hpp.in ${generated}/version.hpp COPYONLY)
configure_file(cmake/version.cpp.in ${generated}/version.cpp @ONLY)
find_package(Git QUIET)
add_custom_command(
  OUTPUT ${generated}/commit.cpp
  DEPENDS ${PROJECT_SOURCE_DIR}/cmake/CommitScript.cmake
  DEPFILE ${generated}/commit.d
  COMMAND ${CMAKE_COMMAND} -DGIT=${GIT_EXECUTABLE} -DSOURCE=${PROJECT_SOURCE_DIR}
          -DOUTPUT=${generated}/commit.cpp -DDEPFILE=${generated}/commit.d -P
          ${PROJECT_SOURCE_DIR}/cmake/CommitScript.cmake
  COMMENT "Reading the commit"
  VERBATIM)
add_library(echelon_version STATIC ${generated}/version.cpp ${generated}/commit.cpp)
target_include_directories(echelon_version PUBLIC ${PROJECT_BINARY_DIR}/generated)

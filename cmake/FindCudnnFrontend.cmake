# The headers of cuDNN 9 and of its frontend, which is headers alone, as the target cudnn::frontend.
# The library is loaded at run time. The frontend is not in Debian: scripts/wrapper.sh unpacks it
# below build/.
include(FindPackageHandleStandardArgs)
find_package(CUDAToolkit QUIET)
set(_build_folder ${PROJECT_SOURCE_DIR}/build/cudnn-frontend/include)
find_path(CudnnFrontend_INCLUDE_DIR cudnn_frontend.h HINTS ${_build_folder})
find_path(Cudnn_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_package_handle_standard_args(
  CudnnFrontend REQUIRED_VARS CudnnFrontend_INCLUDE_DIR Cudnn_INCLUDE_DIR CUDAToolkit_FOUND
  REASON_FAILURE_MESSAGE "install the headers of cuDNN 9 and its frontend")
if(CudnnFrontend_FOUND AND NOT TARGET cudnn::frontend)
  add_library(cudnn::frontend INTERFACE IMPORTED GLOBAL)
  target_include_directories(cudnn::frontend SYSTEM
                             INTERFACE ${CudnnFrontend_INCLUDE_DIR} ${Cudnn_INCLUDE_DIR}
                                       ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(cudnn::frontend INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
endif()
mark_as_advanced(CudnnFrontend_INCLUDE_DIR Cudnn_INCLUDE_DIR)

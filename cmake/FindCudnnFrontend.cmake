# cuDNN 9 with its frontend, which is headers alone, as the target cudnn::frontend. The frontend is
# not in Debian: scripts/wrapper.sh unpacks it below build/.
include(FindPackageHandleStandardArgs)
find_package(CUDAToolkit QUIET)
set(_build_folder ${PROJECT_SOURCE_DIR}/build/cudnn-frontend/include)
find_path(CudnnFrontend_INCLUDE_DIR cudnn_frontend.h HINTS ${_build_folder})
find_path(Cudnn_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(Cudnn_LIBRARY cudnn HINTS ${CUDAToolkit_LIBRARY_DIR})
find_package_handle_standard_args(
  CudnnFrontend REQUIRED_VARS CudnnFrontend_INCLUDE_DIR Cudnn_INCLUDE_DIR Cudnn_LIBRARY
                              CUDAToolkit_FOUND
  REASON_FAILURE_MESSAGE "install cuDNN 9 and its frontend")
if(CudnnFrontend_FOUND AND NOT TARGET cudnn::frontend)
  add_library(cudnn::headers INTERFACE IMPORTED GLOBAL)
  target_include_directories(cudnn::headers SYSTEM
                             INTERFACE ${CudnnFrontend_INCLUDE_DIR} ${Cudnn_INCLUDE_DIR}
                                       ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(cudnn::headers INTERFACE CUDNN_FRONTEND_SKIP_JSON_LIB)
  add_library(cudnn::frontend INTERFACE IMPORTED GLOBAL)
  target_link_libraries(cudnn::frontend INTERFACE cudnn::headers ${Cudnn_LIBRARY} CUDA::nvrtc)
endif()
mark_as_advanced(CudnnFrontend_INCLUDE_DIR Cudnn_INCLUDE_DIR Cudnn_LIBRARY)

// Defines the functions of cuDNN and NVRTC that cuDNN's frontend and cudnn_attention.cpp call, so
// that neither library is linked: cuDNN's call those of the loaded library.
#include "runtime/cuda/attention/cudnn/cudnn_library.hpp"

#include <cudnn.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <nvrtc.h>

#include <cstdlib>
#include <string_view>

#include "core/run/cuda_plugin.hpp"

// FUNCTION(result, name, parameters, arguments)
#define ECHELON_CUDNN_FUNCTIONS(FUNCTION)                                                       \
  FUNCTION(cudnnStatus_t, cudnnCreate, (cudnnHandle_t * handle), (handle))                      \
  FUNCTION(cudnnStatus_t, cudnnDestroy, (cudnnHandle_t handle), (handle))                       \
  FUNCTION(cudnnStatus_t, cudnnSetStream, (cudnnHandle_t handle, cudaStream_t stream),          \
           (handle, stream))                                                                    \
  FUNCTION(cudnnStatus_t, cudnnGetStream, (cudnnHandle_t handle, cudaStream_t * stream),        \
           (handle, stream))                                                                    \
  FUNCTION(size_t, cudnnGetVersion, (), ())                                                     \
  FUNCTION(const char*, cudnnGetErrorString, (cudnnStatus_t status), (status))                  \
  FUNCTION(void, cudnnGetLastErrorString, (char* message, size_t size), (message, size))        \
  FUNCTION(cudnnStatus_t, cudnnBackendCreateDescriptor,                                         \
           (cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t * made), (type, made))  \
  FUNCTION(cudnnStatus_t, cudnnBackendDestroyDescriptor, (cudnnBackendDescriptor_t descriptor), \
           (descriptor))                                                                        \
  FUNCTION(cudnnStatus_t, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor),          \
           (descriptor))                                                                        \
  FUNCTION(cudnnStatus_t, cudnnBackendSetAttribute,                                             \
           (cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,              \
            cudnnBackendAttributeType_t type, int64_t count, const void* elements),             \
           (descriptor, name, type, count, elements))                                           \
  FUNCTION(cudnnStatus_t, cudnnBackendGetAttribute,                                             \
           (cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,        \
            cudnnBackendAttributeType_t type, int64_t asked, int64_t* count, void* elements),   \
           (descriptor, name, type, asked, count, elements))                                    \
  FUNCTION(                                                                                     \
      cudnnStatus_t, cudnnBackendExecute,                                                       \
      (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t operands), \
      (handle, plan, operands))

namespace echelon::cuda {
namespace {

struct CudnnLibrary {
#define ECHELON_POINTER(result, name, parameters, arguments) decltype(&::name) name = nullptr;
  ECHELON_CUDNN_FUNCTIONS(ECHELON_POINTER)
#undef ECHELON_POINTER
  std::string missing;
};

template <class Function>
void find(void* library, const char* name, Function& function, std::string& missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) missing = fmt::format("cuDNN has no {}", name);
}

CudnnLibrary load_cudnn() {
  CudnnLibrary out;
  const std::string path = cudnn_library(std::getenv("ECHELON_CUDNN"), CUDNN_MAJOR);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    out.missing = fmt::format("cuDNN is not loaded: {}", dlerror());
    return out;
  }
#define ECHELON_FIND(result, name, parameters, arguments) \
  find(library, #name, out.name, out.missing);
  ECHELON_CUDNN_FUNCTIONS(ECHELON_FIND)
#undef ECHELON_FIND
  if (!out.missing.empty()) return out;
  const std::size_t version = out.cudnnGetVersion();
  constexpr std::size_t kMinor = 100;  // the number is 10000 major + 100 minor + patch
  if (version / kMinor < CUDNN_VERSION / kMinor) {
    out.missing =
        fmt::format("cuDNN {}.{}.{} is older than {}.{}, for which this was built", version / 10000,
                    version / 100 % 100, version % 100, CUDNN_MAJOR, CUDNN_MINOR);
  }
  return out;
}

const CudnnLibrary& cudnn() {
  static const CudnnLibrary loaded = load_cudnn();
  return loaded;
}

}  // namespace

const std::string& cudnn_missing() { return cudnn().missing; }

}  // namespace echelon::cuda

// Hidden: libraries that link the real functions must not find these.
#define ECHELON_HIDDEN __attribute__((visibility("hidden")))
#define ECHELON_FORWARD(result, name, parameters, arguments) \
  ECHELON_HIDDEN result name parameters { return echelon::cuda::cudnn().name arguments; }
// The frontend compiles kernels of its own for other operations than attention.
#define ECHELON_REFUSE(name, parameters) \
  ECHELON_HIDDEN nvrtcResult name parameters { return NVRTC_ERROR_INTERNAL_ERROR; }

extern "C" {
ECHELON_CUDNN_FUNCTIONS(ECHELON_FORWARD)
ECHELON_REFUSE(nvrtcCreateProgram, (nvrtcProgram*, const char*, const char*, int,
                                    const char* const*, const char* const*))
ECHELON_REFUSE(nvrtcDestroyProgram, (nvrtcProgram*))
ECHELON_REFUSE(nvrtcCompileProgram, (nvrtcProgram, int, const char* const*))
ECHELON_REFUSE(nvrtcGetCUBINSize, (nvrtcProgram, size_t*))
ECHELON_REFUSE(nvrtcGetCUBIN, (nvrtcProgram, char*))
ECHELON_REFUSE(nvrtcGetProgramLogSize, (nvrtcProgram, size_t*))
ECHELON_REFUSE(nvrtcGetProgramLog, (nvrtcProgram, char*))
}

#undef ECHELON_REFUSE
#undef ECHELON_FORWARD
#undef ECHELON_HIDDEN
#undef ECHELON_CUDNN_FUNCTIONS

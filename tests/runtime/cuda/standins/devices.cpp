// Devices, versions and errors.
#include <cstdio>
#include <cstring>

#include "tests/runtime/cuda/standins/machine.hpp"

using namespace echelon::standins;

namespace {

// Compute capability 8.0, as the emulation has: CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability". Processors and cache: NVIDIA A100 white paper.
constexpr int kMajor = 8;
constexpr int kMinor = 0;
constexpr int kMultiprocessors = 108;
constexpr int kSharedPerMultiprocessor = 164 * 1024;
constexpr int kWarp = 32;
// In kHz, and in bits: the same paper.
constexpr int kClock = 1410000;
constexpr int kMemoryClock = 1215000;
constexpr int kMemoryBus = 5120;

bool no_device(int device) { return device < 0 || device >= machine().settings().devices; }

struct NamedError {
  cudaError_t error;
  const char* name;
  const char* text;
};
#define ECHELON_ERROR(error, text) \
  NamedError { error, #error, text }
constexpr NamedError kErrors[] = {
    ECHELON_ERROR(cudaSuccess, "no error"),
    ECHELON_ERROR(cudaErrorInvalidValue, "invalid argument"),
    ECHELON_ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ECHELON_ERROR(cudaErrorInvalidPitchValue, "invalid pitch argument"),
    ECHELON_ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ECHELON_ERROR(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ECHELON_ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ECHELON_ERROR(cudaErrorNotReady, "device not ready"),
    ECHELON_ERROR(cudaErrorLaunchOutOfResources, "too many resources requested for launch"),
    ECHELON_ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ECHELON_ERROR(cudaErrorNotSupported, "operation not supported"),
    ECHELON_ERROR(cudaErrorStreamCaptureUnsupported,
                  "operation not permitted when stream is capturing"),
    ECHELON_ERROR(cudaErrorStreamCaptureInvalidated,
                  "operation failed due to a previous error during capture"),
    ECHELON_ERROR(cudaErrorStreamCaptureMerge,
                  "operation would result in a merge of separate capture sequences"),
    ECHELON_ERROR(cudaErrorStreamCaptureUnmatched,
                  "capture was not ended in the same stream as it "
                  "began"),
    ECHELON_ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ECHELON_ERROR(cudaErrorStreamCaptureIsolation,
                  "dependency created on uncaptured work in another stream"),
    ECHELON_ERROR(cudaErrorCapturedEvent,
                  "operation not permitted on an event last recorded in a capturing stream"),
    ECHELON_ERROR(cudaErrorStreamCaptureWrongThread,
                  "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef ECHELON_ERROR

const NamedError* named(cudaError_t error) {
  for (const NamedError& one : kErrors) {
    if (one.error == error) return &one;
  }
  return nullptr;
}

}  // namespace

cudaError_t cudaGetDeviceCount(int* count) {
  *count = machine().settings().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (no_device(device)) return failed(cudaErrorInvalidDevice);
  this_thread().device = device;
  return cudaSuccess;
}

cudaError_t cudaGetDevice(int* device) {
  *device = this_thread().device;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* prop, int device) {
  if (no_device(device)) return failed(cudaErrorInvalidDevice);
  *prop = {};
  std::snprintf(prop->name, sizeof prop->name, "emulated GPU %d", device);
  prop->totalGlobalMem = machine().settings().device_bytes;
  prop->major = kMajor;
  prop->minor = kMinor;
  prop->multiProcessorCount = kMultiprocessors;
  prop->l2CacheSize = machine().settings().cache_bytes;
  prop->sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attr, int device) {
  if (no_device(device)) return failed(cudaErrorInvalidDevice);
  switch (attr) {
    case cudaDevAttrWarpSize: *value = kWarp; return cudaSuccess;
    case cudaDevAttrClockRate: *value = kClock; return cudaSuccess;
    case cudaDevAttrMultiProcessorCount: *value = kMultiprocessors; return cudaSuccess;
    case cudaDevAttrMemoryClockRate: *value = kMemoryClock; return cudaSuccess;
    case cudaDevAttrGlobalMemoryBusWidth: *value = kMemoryBus; return cudaSuccess;
    case cudaDevAttrL2CacheSize: *value = machine().settings().cache_bytes; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor: *value = kMajor; return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor: *value = kMinor; return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *value = kSharedPerMultiprocessor;
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = machine().settings().shared_per_block;
      return cudaSuccess;
  }
  return failed(cudaErrorInvalidValue);
}

cudaError_t cudaDeviceGetPCIBusId(char* pciBusId, int len, int device) {
  if (no_device(device)) return failed(cudaErrorInvalidDevice);
  char text[16];
  const int length = std::snprintf(text, sizeof text, "0000:%02X:00.0",
                                   machine().settings().first_device + device + 1);
  if (length >= len) return failed(cudaErrorInvalidValue);
  std::memcpy(pciBusId, text, static_cast<std::size_t>(length) + 1);
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* canAccessPeer, int device, int peerDevice) {
  if (no_device(device) || no_device(peerDevice)) return failed(cudaErrorInvalidDevice);
  *canAccessPeer = 0;  // a device uses its own memory only
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* leastPriority, int* greatestPriority) {
  *leastPriority = 0;
  *greatestPriority = -5;  // lower numbers come first; the range of compute capability 8.0
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int* driverVersion) {
  *driverVersion = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* runtimeVersion) {
  *runtimeVersion = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  if (machine().broken) return cudaErrorECCUncorrectable;  // stays until the process ends
  const cudaError_t error = this_thread().last_error;
  this_thread().last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return this_thread().last_error; }

const char* cudaGetErrorName(cudaError_t error) {
  const NamedError* one = named(error);
  return one == nullptr ? "unrecognized error code" : one->name;
}
const char* cudaGetErrorString(cudaError_t error) {
  const NamedError* one = named(error);
  return one == nullptr ? "unrecognized error code" : one->text;
}

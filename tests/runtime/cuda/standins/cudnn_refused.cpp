// Of the CUDA runtime and NVRTC, what cuDNN's frontend links and attention has no use for: a call
// of it is a fault. No header has these, so that they clash with none; arguments are not looked at.
#include <string>

#include "tests/runtime/cuda/standins/machine.hpp"

namespace {

int refused(const char* call) {
  const echelon::standins::Machine::Lock lock;
  echelon::standins::machine().complain(std::string(call) + " has no stand-in");
}

}  // namespace

#define ECHELON_REFUSED(call) \
  int call() { return refused(#call); }

extern "C" {
ECHELON_REFUSED(cudaEventCreate)
ECHELON_REFUSED(cudaKernelSetAttributeForDevice)
ECHELON_REFUSED(cudaLaunchKernel)
ECHELON_REFUSED(cudaLibraryGetKernel)
ECHELON_REFUSED(cudaLibraryLoadData)
ECHELON_REFUSED(cudaLibraryUnload)
ECHELON_REFUSED(cudaPointerGetAttributes)
ECHELON_REFUSED(nvrtcCompileProgram)
ECHELON_REFUSED(nvrtcCreateProgram)
ECHELON_REFUSED(nvrtcDestroyProgram)
ECHELON_REFUSED(nvrtcGetCUBIN)
ECHELON_REFUSED(nvrtcGetCUBINSize)
ECHELON_REFUSED(nvrtcGetProgramLog)
ECHELON_REFUSED(nvrtcGetProgramLogSize)
}

#undef ECHELON_REFUSED

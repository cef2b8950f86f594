// Functions of the CUDA runtime that cuDNN's frontend links but attention does not use: a call of
// one is a fault. No header declares them, which avoids clashes; arguments are ignored.
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
}

#undef ECHELON_REFUSED

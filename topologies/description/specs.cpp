#include "topologies/description/specs.hpp"

namespace echelon {

FlopsPerSecond GpuSpec::peak(Dtype dtype) const {
  switch (dtype) {
    case Dtype::fp64: return fp64;
    case Dtype::fp32: return tf32 > FlopsPerSecond{} ? tf32 : fp32;
    case Dtype::bf16: return bf16;
    case Dtype::fp16: return fp16;
    case Dtype::fp8: return fp8;
  }
  return {};
}

}  // namespace echelon

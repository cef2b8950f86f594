#include "topologies/description/specs.hpp"

namespace echelon {

std::string_view name_of(NicKind kind) {
  switch (kind) {
    case NicKind::infiniband: return "infiniband";
    case NicKind::roce: return "roce";
    case NicKind::efa: return "efa";
    case NicKind::tcpx: return "tcpx";
    case NicKind::slingshot: return "slingshot";
    case NicKind::ethernet: return "ethernet";
  }
  return "";
}

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

std::string_view GpuSpec::peak_format(Dtype dtype) const {
  return dtype == Dtype::fp32 && tf32 > FlopsPerSecond{} ? "tf32" : name_of(dtype);
}

}  // namespace echelon

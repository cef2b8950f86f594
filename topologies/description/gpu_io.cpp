// GPU descriptions: the "gpus" catalog and GPUs defined inline in a cluster file.
#include <fmt/format.h>

#include "topologies/description/quantity_io.hpp"

namespace echelon {

namespace {

constexpr NumberRule kMemory{Dimension::bytes, 0x1p20, 1e15};
constexpr NumberRule kBandwidth{Dimension::bandwidth, 1e6, 1e16};
constexpr NumberRule kCompute{Dimension::compute, 1e6, 1e20};
constexpr NumberRule kLaunch{Dimension::time, 1e-8, 1e-2};
constexpr NumberRule kClock{Dimension::frequency, 1, 1e5};
constexpr NumberRule kPower{Dimension::power, 1, 1e6};
constexpr NumberRule kPrice{Dimension::money_rate, 1e-6, 1e6};
constexpr NumberRule kCapability{Dimension::ratio, 0, 1000};

}  // namespace

GpuDescription read_gpu(Document& document, const Json& object, const std::string& pointer) {
  GpuDescription gpu;
  Section in(object, document.where(), pointer);
  JsonReader& reader = in.reader;
  GpuSpec& spec = gpu.spec;
  spec.name = reader.string("name");
  spec.memory = Bytes{document.number(in, "memory", kMemory)};
  spec.hbm = BytesPerSecond{document.number(in, "hbm", kBandwidth)};
  const auto peak = [&](const char* key) {  // absent: the GPU has no such units
    return FlopsPerSecond{document.optional_number(in, key, kCompute).value_or(0)};
  };
  spec.bf16 = peak("bf16");
  spec.fp16 = peak("fp16");
  spec.fp8 = peak("fp8");
  spec.tf32 = peak("tf32");
  spec.fp64 = peak("fp64");
  document.optional_number(in, "fp4", kCompute);
  if (spec.bf16 <= FlopsPerSecond{} && spec.fp16 <= FlopsPerSecond{} && !document.error()) {
    document.number(in, "bf16", kCompute);  // reported as missing
  }
  if (spec.fp16 <= FlopsPerSecond{}) spec.fp16 = spec.bf16;
  constexpr double kTensorOverVector = 16;
  const double fp32 = spec.fp16.in(FlopsPerSecond{1e12}) / kTensorOverVector;
  spec.fp32 = FlopsPerSecond{document.number_or(
      in, "fp32", kCompute,
      {fp32, "TFLOP/s", "a sixteenth of the 16-bit peak, as on A100 (19.5 of 312)"})};
  spec.sms = document.count(in, "sms", 1, 100'000);
  spec.boost_mhz = document.number_or(in, "boost", kClock,
                                      {1500, "MHz", "a round number; used only in reports"});
  spec.l2 = Bytes{document.number_or(in, "l2", {Dimension::bytes, 1e3, 1e12},
                                     {40, "MB", "the size of A100's"})};
  spec.launch = Seconds{document.number_or(
      in, "launch", kLaunch, {4, "us", "a few microseconds of host time per kernel launch"})};
  spec.compute_capability =
      document.number_or(in, "compute_capability", kCapability,
                         {0, "", "no CUDA compute capability; no rule that depends on it applies"});
  spec.watts = document.optional_number(in, "tdp", kPower).value_or(0);
  if (const auto price = document.optional_number(in, "price", kPrice)) {
    gpu.price_per_hour = Dollars{*price};
  }
  spec.peer_access = reader.boolean_or("peer_access", true);
  spec.family = reader.string_or("family", "");
  reader.string_or("vendor", "");
  reader.string_or("notes", "");
  const auto names = [&](const char* key, std::vector<std::string>& out) {
    const Json* list = reader.member(key);
    if (list == nullptr) return;
    for (const Json& name : *list) {
      if (name.is_string()) out.push_back(name.get<std::string>());
    }
  };
  names("aliases", gpu.aliases);
  names("driver_names", gpu.driver_names);
  if (pointer.empty()) {
    check_schema(in, document);
    reader.ignore({"sources"});
  }
  document.keep(reader.finish());
  return gpu;
}

Result<GpuDescription> parse_gpu(std::string_view json, std::string_view where) {
  const Result<Json> parsed = parse_json(json, where);
  if (!parsed) return parsed.error();
  Document document{std::string(where), "gpu."};
  Section root(*parsed, document.where(), "");
  document.read_sources(root);
  GpuDescription gpu = read_gpu(document, *parsed, "");
  if (document.error()) return *document.error();
  gpu.facts = document.take_facts();
  return gpu;
}

}  // namespace echelon

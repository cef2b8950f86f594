#include <algorithm>

#include "core/json/json_io.hpp"
#include "core/run/measurements.hpp"

namespace echelon {
namespace {

Json json_of(const GpuFacts& gpu) {
  return {{"name", gpu.name},
          {"gpus", gpu.gpus},
          {"memory_bytes", gpu.memory.in(kByte)},
          {"sms", gpu.sms},
          {"compute_capability", gpu.compute_capability},
          {"l2_bytes", gpu.l2.in(kByte)},
          {"clock_mhz", gpu.clock_mhz},
          {"memory_clock_mhz", gpu.memory_clock_mhz},
          {"memory_bits", gpu.memory_bits},
          {"context_bytes", gpu.context.in(kByte)},
          {"communicator_bytes", gpu.communicator.in(kByte)},
          {"peer_bytes", gpu.peer.in(kByte)},
          {"attention", gpu.attention},
          {"attention_parts_bytes", gpu.attention_parts.in(kByte)},
          {"attention_deterministic", gpu.attention_deterministic},
          {"driver", gpu.driver},
          {"runtime", gpu.runtime},
          {"cublas", gpu.cublas},
          {"nccl", gpu.nccl}};
}

Result<GpuFacts> read_gpu_facts(const Json& json, std::string_view where) {
  JsonReader in(json, std::string(where), "/gpu");
  constexpr double kMaxBytes = 1e15;
  constexpr std::int64_t kMaxVersion = 1'000'000'000;
  const auto version = [&](const char* key) {
    return static_cast<int>(in.integer(key, 0, kMaxVersion));
  };
  GpuFacts gpu;
  gpu.name = in.string("name");
  gpu.gpus = static_cast<int>(in.integer("gpus", 1, 4096));
  gpu.memory = Bytes{in.number("memory_bytes", 1, kMaxBytes)};
  gpu.sms = static_cast<int>(in.integer("sms", 1, 100'000));
  gpu.compute_capability = in.number("compute_capability", 0, 1000);
  gpu.l2 = Bytes{in.number("l2_bytes", 0, kMaxBytes)};
  gpu.clock_mhz = in.number("clock_mhz", 0, 1e6);
  gpu.memory_clock_mhz = in.number("memory_clock_mhz", 0, 1e6);
  gpu.memory_bits = static_cast<int>(in.integer("memory_bits", 0, 1'000'000));
  gpu.context = Bytes{in.number("context_bytes", 0, kMaxBytes)};
  gpu.communicator = Bytes{in.number("communicator_bytes", 0, kMaxBytes)};
  gpu.peer = Bytes{in.number("peer_bytes", 0, kMaxBytes)};
  gpu.attention = in.string_or("attention", "");
  gpu.attention_parts = Bytes{in.number("attention_parts_bytes", 0, kMaxBytes)};
  gpu.attention_deterministic = in.boolean_or("attention_deterministic", false);
  gpu.driver = version("driver");
  gpu.runtime = version("runtime");
  gpu.cublas = version("cublas");
  gpu.nccl = version("nccl");
  if (Status done = in.finish(); !done) return done.error();
  return gpu;
}

}  // namespace

std::string measurements_to_json(const Measurements& measurements) {
  Json list = Json::array();
  for (const Measurement& one : measurements.all) {
    list.push_back({{"what", one.what},
                    {"ranks", one.ranks},
                    {"cores", one.cores},
                    {"shape", one.shape},
                    {"seconds", one.seconds.in(kSecond)}});
  }
  Json root{{"schema", 1}};
  if (measurements.gpu) root["gpu"] = json_of(*measurements.gpu);
  root["measurements"] = std::move(list);
  return root.dump(1) + "\n";
}

Result<Measurements> parse_measurements(std::string_view json, std::string_view where) {
  const Result<Json> root = parse_json(json, where);
  if (!root) return root.error();
  JsonReader reader(*root, std::string(where));
  (void)reader.integer("schema", 1, 1);
  const Json* gpu = reader.member("gpu");
  const Json* list = reader.member("measurements");
  if (list == nullptr || !list->is_array()) {
    reader.fail("measurements", "not a list", "a list of measurements");
  }
  if (Status done = reader.finish(); !done) return done.error();
  Measurements out;
  if (gpu != nullptr) {
    Result<GpuFacts> facts = read_gpu_facts(*gpu, where);
    if (!facts) return facts.error();
    out.gpu = *std::move(facts);
  }
  for (std::size_t i = 0; i < list->size(); ++i) {
    JsonReader one((*list)[i], std::string(where), "/measurements/" + std::to_string(i));
    constexpr std::int64_t kMany = 4096;
    Measurement measured;
    measured.what = one.string("what");
    measured.ranks = static_cast<int>(one.integer("ranks", 1, kMany));
    measured.cores = static_cast<int>(one.integer("cores", 1, kMany));
    measured.seconds = Seconds{one.number("seconds", 0, 1e6)};
    const Json* shape = one.member("shape");
    const bool numbers = shape != nullptr && shape->is_array() &&
                         std::all_of(shape->begin(), shape->end(),
                                     [](const Json& n) { return n.is_number_integer(); });
    if (!numbers) one.fail("shape", "not a list of whole numbers", "for example [256, 128, 512]");
    if (Status done = one.finish(); !done) return done.error();
    measured.shape = shape->get<std::vector<std::int64_t>>();
    out.all.push_back(std::move(measured));
  }
  return out;
}

}  // namespace echelon

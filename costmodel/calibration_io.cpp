#include "costmodel/calibration_io.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <variant>

#include "core/embedded.hpp"
#include "core/json_io.hpp"
#include "core/nearest.hpp"

namespace echelon {
namespace {

/// One field of a calibration: its key, the unit it is written in, its range.
struct Field {
  const char* key;
  std::variant<double Calibration::*, Seconds Calibration::*, Bytes Calibration::*,
               BytesPerSecond Calibration::*>
      member;
  const char* unit;  ///< "ratio", "tokens", "us" or "MiB"
  double least, most;
};

using C = Calibration;
constexpr auto kFields = std::to_array<Field>({
    {"gemm_efficiency", &C::gemm_efficiency, "ratio", 1e-3, 1.2},
    {"gemm_ramp", &C::gemm_ramp, "elements", 0, 1e5},
    {"kernel_fixed", &C::kernel_fixed, "us", 0, 1e4},
    {"attention_forward", &C::attention_forward, "ratio", 1e-3, 1.2},
    {"attention_backward", &C::attention_backward, "ratio", 1e-3, 1.2},
    {"attention_ramp", &C::attention_ramp, "tokens", 0, 1e6},
    {"memory_efficiency", &C::memory_efficiency, "ratio", 1e-3, 1.2},
    {"optimizer_efficiency", &C::optimizer_efficiency, "ratio", 1e-3, 1.2},
    {"host_layer_forward", &C::host_layer_forward, "us", 0, 1e7},
    {"host_layer_backward", &C::host_layer_backward, "us", 0, 1e7},
    {"host_memory", &C::host_memory, "GB/s", 1, 1e6},
    {"step_fixed", &C::step_fixed, "us", 0, 1e8},
    {"straggler_per_doubling", &C::straggler_per_doubling, "ratio", 0, 1},
    {"link_efficiency", &C::link_efficiency, "ratio", 1e-3, 1.2},
    {"nic_efficiency", &C::nic_efficiency, "ratio", 1e-3, 1.2},
    {"collective_base", &C::collective_base, "us", 0, 1e6},
    {"intra_hop", &C::intra_hop, "us", 0, 1e6},
    {"inter_hop", &C::inter_hop, "us", 0, 1e6},
    {"dp_overlap", &C::dp_overlap, "ratio", 0, 1},
    {"tp_overlap", &C::tp_overlap, "ratio", 0, 1},
    {"overlap_slowdown", &C::overlap_slowdown, "ratio", 0, 1},
    {"allocator_reserve", &C::allocator_reserve, "ratio", 0, 1},
    {"context", &C::context, "MiB", 0, 1e6},
    {"nccl_per_communicator", &C::nccl_per_communicator, "MiB", 0, 1e6},
    {"gemm_workspace", &C::gemm_workspace, "MiB", 0, 1e6},
    {"time_band", &C::time_band, "ratio", 0, 1},
    {"memory_band", &C::memory_band, "ratio", 0, 1},
});

void set(Calibration& c, const Field& field, double value) {
  if (const auto* ratio = std::get_if<double C::*>(&field.member)) c.*(*ratio) = value;
  if (const auto* time = std::get_if<Seconds C::*>(&field.member)) c.*(*time) = value * 1_us;
  if (const auto* size = std::get_if<Bytes C::*>(&field.member)) c.*(*size) = value * 1_MiB;
  if (const auto* rate = std::get_if<BytesPerSecond C::*>(&field.member)) {
    c.*(*rate) = value * 1_GBps;
  }
}

double get(const Calibration& c, const Field& field) {
  if (const auto* ratio = std::get_if<double C::*>(&field.member)) return c.*(*ratio);
  if (const auto* time = std::get_if<Seconds C::*>(&field.member)) return (c.*(*time)).in(1_us);
  if (const auto* size = std::get_if<Bytes C::*>(&field.member)) return (c.*(*size)).in(1_MiB);
  return (c.*std::get<BytesPerSecond C::*>(field.member)).in(1_GBps);
}

void replace_source(Calibration& c, const std::string& field, std::string text) {
  for (auto& source : c.sources) {
    if (source.field == field) {
      source.text = std::move(text);
      return;
    }
  }
  c.sources.push_back({field, std::move(text)});
}

const EmbeddedFile* find_shipped(std::string_view name) {
  for (const EmbeddedFile& file : embedded_calibrations()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

std::vector<std::string> shipped_names() {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : embedded_calibrations()) names.emplace_back(file.name);
  return names;
}

/// The base a file extends, by the name of a shipped calibration; a chain through the user's own
/// files is not offered.
Result<Calibration> read_base(JsonReader& reader) {
  const std::string base = reader.string_or("extends", "");
  if (base.empty()) return Calibration{};
  const EmbeddedFile* file = find_shipped(base);
  if (file == nullptr) {
    const auto names = shipped_names();
    return input_error(reader.where() + " at " + reader.pointer_to("extends"), "'" + base + "'",
                       "the name of a shipped calibration", did_you_mean(base, names));
  }
  return parse_calibration(file->content, "shipped calibration " + base);
}

void read_rates(JsonReader& reader, bool complete, Calibration& out, Status& status) {
  const Json* rates = reader.member("rates");
  if (rates == nullptr || !rates->is_object()) {
    reader.fail("rates", rates == nullptr ? "no key 'rates'" : "not an object",
                "an object of {\"value\", \"unit\", \"source\"} entries");
    return;
  }
  JsonReader all(*rates, reader.where(), reader.pointer_to("rates"));
  for (const Field& field : kFields) {
    if (!all.has(field.key)) {
      (void)all.member(field.key);  // a known key that is absent
      if (complete) {
        all.fail(field.key, std::string("no rate '") + field.key + "'",
                 "every rate, or \"extends\" naming a shipped calibration");
      }
      continue;
    }
    const Json* entry = all.member(field.key);
    if (!entry->is_object()) {
      all.fail(field.key, "not an object", "{\"value\": …, \"unit\": …, \"source\": …}");
      continue;
    }
    JsonReader one(*entry, reader.where(), all.pointer_to(field.key));
    const double value = one.number("value", field.least, field.most);
    (void)one.choice("unit", {field.unit});
    std::string source = one.string("source");
    if (Status done = one.finish(); !done && status.ok()) status = done;
    set(out, field, value);
    replace_source(out, field.key, std::move(source));
  }
  if (Status done = all.finish(); !done && status.ok()) status = done;
}

Result<Calibration> read_calibration(const Json& json, std::string_view where) {
  JsonReader reader(json, std::string(where));
  (void)reader.integer("schema", 1, 1);
  (void)reader.choice("kind", {"calibration"});
  const bool extends = reader.has("extends");
  Result<Calibration> base = read_base(reader);
  if (!base) return base.error();
  Calibration out = *base;
  out.name = reader.string("name");
  out.gpu_family = reader.string("gpu");
  out.stack = reader.string("stack");
  const std::string evidence =
      reader.choice("evidence", {"measured", "calibrated", "extrapolated"});
  out.evidence = evidence == "measured"     ? Evidence::measured
                 : evidence == "calibrated" ? Evidence::calibrated
                                            : Evidence::extrapolated;
  out.fitted_to = reader.string("fitted_to");
  Status nested = Done{};
  read_rates(reader, !extends, out, nested);
  if (Status done = reader.finish(); !done) return done.error();
  if (!nested) return nested.error();
  return out;
}

/// Architecture by CUDA compute capability; AMD and unknown devices are "generic".
std::string_view family_of(const GpuSpec& gpu) {
  const double cc = gpu.compute_capability;
  if (cc >= 10) return "blackwell";
  if (cc >= 9) return "hopper";
  if (cc >= 8.55) return "ada";
  if (cc >= 8) return "ampere";
  if (cc >= 7) return "volta";
  return "generic";
}

}  // namespace

Result<Calibration> parse_calibration(std::string_view text, std::string_view where) {
  Result<Json> json = parse_json(text, where);
  if (!json) return json.error();
  return read_calibration(*json, where);
}

Result<Calibration> load_calibration(const std::string& path) {
  Result<Json> json = read_json(path);
  if (!json) return json.error();
  return read_calibration(*json, path);
}

Result<Calibration> pick_calibration(const GpuSpec& gpu, const Stack& stack) {
  const std::string family{family_of(gpu)};
  for (const std::string& name : {gpu.name + "-" + stack.name, family + "-" + stack.name, gpu.name,
                                  family, std::string("generic")}) {
    if (const EmbeddedFile* file = find_shipped(name)) {
      return parse_calibration(file->content, "shipped calibration " + name);
    }
  }
  return environment_error("calibrations", "no shipped calibration for " + gpu.name);
}

std::string calibration_to_json(const Calibration& c) {
  Json rates = Json::object();
  for (const Field& field : kFields) {
    std::string source;
    for (const auto& each : c.sources) {
      if (each.field == field.key) source = each.text;
    }
    rates[field.key] = {{"value", get(c, field)}, {"unit", field.unit}, {"source", source}};
  }
  const Json json = {{"schema", 1},
                     {"kind", "calibration"},
                     {"name", c.name},
                     {"gpu", c.gpu_family},
                     {"stack", c.stack},
                     {"evidence", std::string(name_of(c.evidence))},
                     {"fitted_to", c.fitted_to},
                     {"rates", rates}};
  return json.dump(2) + "\n";
}

}  // namespace echelon

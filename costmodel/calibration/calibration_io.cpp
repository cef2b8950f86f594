#include "costmodel/calibration/calibration_io.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/did_you_mean.hpp"
#include "core/base/embedded.hpp"
#include "core/base/expects.hpp"
#include "core/base/text.hpp"
#include "core/json/document_kind_io.hpp"
#include "core/json/json_io.hpp"
#include "costmodel/calibration/calibration_fields.hpp"
#include "topologies/description/catalog.hpp"
#include "topologies/import/this_machine.hpp"

namespace echelon {
namespace {

/// Schema 1 calls some rates otherwise: CalibrationField::schema1_key. Up to schema 2 a file has no
/// memory band but a margin: read_margin().
constexpr int kSchema = 3;
constexpr const char* kByCores = "calibrations by cores";

const EmbeddedFile* find_shipped(std::string_view name) {
  for (const EmbeddedFile& file : embedded_calibrations()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

/// "did you mean 'hopper-nanotron'?", else the calibrations of GPU families and what follows them.
std::string nearest_shipped(std::string_view name) {
  std::vector<std::string> names;
  std::string families;
  for (const EmbeddedFile& file : embedded_calibrations()) {
    if (file.name.starts_with("prior-")) continue;
    names.emplace_back(file.name);
    if (file.name.find('-') != std::string_view::npos) continue;
    families += (families.empty() ? "" : ", ") + std::string(file.name);
  }
  std::string hint = did_you_mean(name, names);
  if (!hint.empty()) return hint;
  return "shipped: " + families + "; with a framework: hopper-megatron-core";
}

/// The base that a file extends, by the name of a shipped calibration; chains through the user's
/// own files are not supported.
Result<Calibration> read_base(JsonReader& reader) {
  const std::string base = reader.string_or("extends", "");
  if (base.empty()) return Calibration{};
  const EmbeddedFile* file = find_shipped(base);
  if (file == nullptr) {
    return input_error(reader.pointer_to("extends"), in_quotes(base),
                       "the name of a shipped calibration", nearest_shipped(base));
  }
  return parse_calibration(file->content, "shipped calibration " + base);
}

/// The margin of schema 2, below the memory of a GPU, that plans had to keep in order to run. All
/// margins but 0 were read from runs on GPUs of 79.2 GiB: the band has the same share as bias, so
/// that plans fit there with P = 1/2 where they did before, and the usual width, assumed.
void read_margin(JsonReader& rates, Calibration& out, Status& status) {
  constexpr double kMemory = 79.2 * 1024;  // MiB
  constexpr double kSpread = 0.05;
  rates.ignore({"memory_band"});  // was never used
  const Json* entry = rates.member("fits_margin");
  if (entry == nullptr || !entry->is_object()) return;
  JsonReader one(*entry, rates.where(), "/rates/fits_margin");
  const double margin = one.number("value", 0, kMemory / 2);
  one.ignore({"unit", "source"});
  if (Status done = one.finish(); !done && status.ok()) status = done;
  if (!status.ok() || margin == 0) return;
  out.memory_band = MemoryBand{MemoryBandKind::assumed, -std::log(1 - margin / kMemory), kSpread,
                               "the margin of a file of schema 2"};
}

void read_band(JsonReader& reader, Calibration& out, Status& status) {
  const Json* entry = reader.member("memory_band");
  if (entry == nullptr) return;
  if (!entry->is_object()) {
    reader.fail("memory_band", "not an object",
                "{\"kind\": …, \"bias\": …, \"spread\": …, \"source\": …}");
    return;
  }
  JsonReader one(*entry, reader.where(), "/memory_band");
  MemoryBand band;
  const std::string kind =
      one.choice("kind", {kMemoryBandKinds[0], kMemoryBandKinds[1], kMemoryBandKinds[2]});
  for (const MemoryBandKind each :
       {MemoryBandKind::measured, MemoryBandKind::extrapolated, MemoryBandKind::assumed}) {
    if (kind == name_of(each)) band.kind = each;
  }
  band.bias = one.number("bias", -kMostMemoryBias, kMostMemoryBias);
  band.spread = one.number("spread", kLeastMemorySpread, kMostMemorySpread);
  band.source = one.string("source");
  if (Status done = one.finish(); !done && status.ok()) status = done;
  out.memory_band = std::move(band);
}

/// Whether all rates are the file's own; `complete`: they must be.
bool read_rates(JsonReader& reader, int schema, bool complete, Calibration& out, Status& status) {
  const Json* rates = reader.member("rates");
  if (rates == nullptr || !rates->is_object()) {
    reader.fail("rates", rates == nullptr ? "no key 'rates'" : "not an object",
                "an object of {\"value\", \"unit\", \"source\"} entries");
    return false;
  }
  bool own = true;
  JsonReader all(*rates, reader.where(), "/rates");
  for (const CalibrationField& field : calibration_fields()) {
    const char* key = field.key_in(schema);
    if (!all.has(key)) {
      (void)all.member(key);  // a known key that is absent
      own = false;
      if (complete) {
        all.fail(key, std::string("no rate '") + key + "'",
                 "every rate, or \"extends\" naming a shipped calibration");
      }
      continue;
    }
    const Json* entry = all.member(key);
    if (!entry->is_object()) {
      all.fail(key, "not an object", "{\"value\": …, \"unit\": …, \"source\": …}");
      continue;
    }
    JsonReader one(*entry, reader.where(), "/rates/" + std::string(key));
    const double value = one.number("value", field.min, field.max);
    (void)one.choice("unit", {field.unit});
    std::string source = one.string("source");
    if (Status done = one.finish(); !done && status.ok()) status = done;
    set_rate(out, field, value);
    set_source(out, field, std::move(source));
  }
  if (schema < kSchema) read_margin(all, out, status);
  if (Status done = all.finish(); !done && status.ok()) status = done;
  return own;
}

/// `under`: the rates that the file's own replace, if not those of the calibration that it extends.
Result<Calibration> read_calibration(const Json& json, std::string_view where,
                                     const Calibration* under = nullptr) {
  JsonReader reader(json, std::string(where));
  const auto schema = static_cast<int>(reader.integer("schema", 1, kSchema));
  (void)reader.choice("kind", {"calibration"});
  const bool extends = reader.has("extends");
  Result<Calibration> base = read_base(reader);
  if (!base) return base.error();
  const Calibration::Parent from{base->gpu_family, base->framework};
  Calibration out = under == nullptr ? *std::move(base) : *under;
  out.name = reader.string("name");
  out.gpu_family = reader.string("gpu");
  out.framework = reader.string(schema == 1 ? "stack" : "framework");
  const std::string evidence =
      reader.choice("evidence", {"measured", "calibrated", "extrapolated"});
  out.evidence = evidence == "measured"     ? Evidence::measured
                 : evidence == "calibrated" ? Evidence::calibrated
                                            : Evidence::extrapolated;
  out.fitted_to = reader.string("fitted_to");
  Status nested = Done{};
  const bool own = read_rates(reader, schema, !extends, out, nested);
  out.parent = extends && !own ? std::optional(from) : std::nullopt;
  if (schema == kSchema) read_band(reader, out, nested);
  if (Status done = reader.finish(); !done) return done.error();
  if (!nested) return nested.error();
  return out;
}

}  // namespace

Result<Calibration> parse_calibration(std::string_view text, std::string_view where) {
  Result<Json> json = parse_json(text, where);
  if (!json) return json.error();
  return read_calibration(*json, where);
}

Result<std::vector<CalibrationByCores>> load_calibrations(const std::string& path) {
  Result<Json> json = read_json(path);
  if (!json) return json.error();
  if (const Status kind = check_kind(*json, path, DocumentKind::calibration); !kind) {
    return kind.error();
  }
  std::vector<CalibrationByCores> out;
  const auto kind = json->find("kind");
  if (kind == json->end() || *kind != kByCores) {
    Result<Calibration> only = read_calibration(*json, path);
    if (!only) return only.error();
    out.push_back({1, *std::move(only)});
    return out;
  }
  JsonReader reader(*json, path);
  (void)reader.integer("schema", 1, 1);
  (void)reader.choice("kind", {kByCores});
  const Json* list = reader.member("calibrations");
  if (list == nullptr || !list->is_array() || list->empty()) {
    reader.fail("calibrations", "no list", "calibrations with \"cores\", rising");
  }
  if (Status done = reader.finish(); !done) return done.error();
  constexpr int kMostCores = 1 << 20;
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& each = (*list)[i];
    const std::string at = "/calibrations/" + std::to_string(i);
    if (!each.is_object() || !each.contains("calibration")) {
      return input_error(path + " at " + at, "an entry without \"cores\" or \"calibration\"",
                         "both of them");
    }
    JsonReader entry(each, path, at);
    const int cores = static_cast<int>(entry.integer("cores", 1, kMostCores));
    (void)entry.member("calibration");
    if (Status done = entry.finish(); !done) return done.error();
    Result<Calibration> one = read_calibration(each["calibration"], path);
    if (!one) return one.error();
    out.push_back({cores, *std::move(one)});
  }
  return out;
}

std::size_t entry_for(const std::vector<CalibrationByCores>& all, int cores) {
  std::size_t best = 0;
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i].cores <= cores) best = i;
  }
  return best;
}

Result<Calibration> load_calibration(const std::string& path, int cores) {
  Result<std::vector<CalibrationByCores>> all = load_calibrations(path);
  if (!all) return all.error();
  return std::move((*all)[entry_for(*all, cores)].calibration);
}

std::string gpu_family(const GpuSpec& gpu) {
  if (gpu.name == kCpuRank) return "cpu";
  if (!gpu.family.empty()) return gpu.family;
  static const std::vector<GpuSummary> kKnown = list_gpus();
  const GpuSpec* nearest = nullptr;
  for (const GpuSummary& known : kKnown) {
    const double capability = known.spec.compute_capability;
    const bool later = nearest == nullptr || capability > nearest->compute_capability;
    constexpr double kTie = 1e-6;
    if (!known.spec.family.empty() && capability > 0 && later &&
        gpu.compute_capability >= capability - kTie) {
      nearest = &known.spec;
    }
  }
  return nearest == nullptr ? "generic" : nearest->family;
}

std::string rates_family(const GpuSpec& gpu) {
  using Pair = std::pair<std::string_view, std::string_view>;
  // Rubin has Blackwell's tensor memory and 16-bit FLOPs per clock and SM, and TransformerEngine
  // builds the same kernels for both (NVIDIA/TransformerEngine@d0067d0d, common/CMakeLists.txt:
  // sm_100a, 103a, 107a). CDNA 5 follows CDNA 4, with matrix instructions of its own.
  constexpr std::array kNearest{Pair{"rubin", "blackwell"}, Pair{"cdna5", "cdna4"}};
  std::string family = gpu_family(gpu);
  if (find_shipped(family) != nullptr) return family;
  for (const auto& [of, nearest] : kNearest) {
    if (family == of) return std::string(nearest);
  }
  return family;
}

Calibration applied_to(const GpuSpec& gpu, Calibration rates) {
  constexpr double kWidest = 1;
  std::string family = gpu_family(gpu);
  if (rates_family(gpu) == family) return rates;
  rates.stands_in_for = std::move(family);
  rates.evidence = Evidence::extrapolated;
  rates.time_band = std::min(kWidest, std::hypot(rates.time_band, kUnseenBand));
  return rates;
}

std::optional<Calibration> shipped_calibration(const std::string& name) {
  const EmbeddedFile* file = find_shipped(name);
  if (file == nullptr) return std::nullopt;
  Result<Calibration> read = parse_calibration(file->content, "shipped calibration " + name);
  EXPECTS(read.ok(), read.ok() ? "" : read.error().message());
  return *std::move(read);
}

Result<Calibration> prior_calibration(const GpuSpec& gpu, const Framework& framework) {
  const std::string family = rates_family(gpu);
  std::optional<Calibration> out = shipped_calibration(family);
  if (!out) out = shipped_calibration("generic");
  if (!out) return environment_error("calibrations", "no shipped calibration for " + gpu.name);
  if (family == "cpu") return *std::move(out);  // which has no host beside it
  for (const std::string& of :
       {framework.calibration_key(), family + "-" + framework.calibration_key()}) {
    const EmbeddedFile* file = find_shipped("prior-" + of);
    if (file == nullptr) continue;
    const Result<Json> json =
        parse_json(file->content, "shipped calibration " + std::string(file->name));
    if (!json) return json.error();
    Result<Calibration> next = read_calibration(*json, file->name, &*out);
    if (!next) return next.error();
    next->name = "prior-" + family + "-" + framework.calibration_key();
    next->gpu_family = out->gpu_family;
    out = *std::move(next);
  }
  return applied_to(gpu, *std::move(out));
}

Result<Calibration> pick_calibration(const GpuSpec& gpu, const Framework& framework) {
  auto found = shipped_calibration(rates_family(gpu) + "-" + framework.calibration_key());
  if (!found) {
    Result<Calibration> prior = prior_calibration(gpu, framework);
    if (prior) prior->memory_band.reset();  // memory_band_of() takes that of GPUs with runs
    return prior;
  }
  if (!framework.calibrated_as.empty()) found->evidence = Evidence::extrapolated;
  return applied_to(gpu, *std::move(found));
}

namespace {

/// Whether rates of `named` ("hopper", "H100-SXM5-80GB", "any") are those of the GPU's family.
bool is_of_gpu(const std::string& named, const GpuSpec& gpu) {
  const std::string family = gpu_family(gpu);
  if (named == "any" || named == "generic" || named == family || named == gpu.name) return true;
  static const std::vector<GpuSummary> kKnown = list_gpus();
  return std::ranges::any_of(kKnown, [&](const GpuSummary& each) {
    return each.spec.name == named && gpu_family(each.spec) == family;
  });
}

}  // namespace

NamedCalibration named_calibration(Calibration given, const GpuSpec& gpu,
                                   const Framework& framework) {
  const auto is_own = [&](const std::string& family, const std::string& software) {
    const bool same = software == "any" || software == framework.name;
    return same && is_of_gpu(family, gpu);
  };
  NamedCalibration out{std::move(given), {}};
  Calibration& c = out.calibration;
  if (!is_own(c.gpu_family, c.framework)) {
    out.foreign = c.gpu_family + "/" + c.framework;
  } else if (c.parent && !is_own(c.parent->gpu_family, c.parent->framework)) {
    out.foreign = c.parent->gpu_family + "/" + c.parent->framework;
  }
  if (out.foreign.empty()) return out;
  constexpr double kWidest = 1;
  c.evidence = Evidence::extrapolated;
  c.time_band = std::min(kWidest, std::hypot(c.time_band, kUnseenBand));
  const Result<Calibration> usual = pick_calibration(gpu, framework);
  if (usual) c.time_band = std::max(c.time_band, usual->time_band);
  return out;
}

namespace {

Json json_of(const Calibration& c) {
  Json rates = Json::object();
  for (const CalibrationField& field : calibration_fields()) {
    std::string source;
    for (const auto& each : c.sources) {
      if (each.field == field.key) source = each.text;
    }
    rates[field.key] = {{"value", rate_of(c, field)}, {"unit", field.unit}, {"source", source}};
  }
  Json out{{"schema", kSchema},
           {"kind", "calibration"},
           {"name", c.name},
           {"extends", "generic"},  // for rates that later versions add
           {"gpu", c.gpu_family},
           {"framework", c.framework},
           {"evidence", std::string(name_of(c.evidence))},
           {"fitted_to", c.fitted_to},
           {"rates", rates}};
  if (c.memory_band) {
    out["memory_band"] = {{"kind", std::string(name_of(c.memory_band->kind))},
                          {"bias", c.memory_band->bias},
                          {"spread", c.memory_band->spread},
                          {"source", c.memory_band->source}};
  }
  return out;
}

}  // namespace

std::string calibration_to_json(const Calibration& c) { return json_of(c).dump(2) + "\n"; }

std::string calibrations_to_json(const std::vector<CalibrationByCores>& all) {
  Json list = Json::array();
  for (const CalibrationByCores& each : all) {
    list.push_back({{"cores", each.cores}, {"calibration", json_of(each.calibration)}});
  }
  const Json json{{"schema", 1}, {"kind", kByCores}, {"calibrations", std::move(list)}};
  return json.dump(2) + "\n";
}

}  // namespace echelon

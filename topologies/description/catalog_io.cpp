#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"
#include "core/json/json_io.hpp"
#include "topologies/description/catalog.hpp"

namespace echelon {

namespace {

/// Normalizes a name: "RTX 4090", "rtx-4090" and "RTX4090" are equal.
std::string plain_name(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == ' ' || c == '-' || c == '_') continue;
    result += lower_case(c);
  }
  return result;
}

/// The "name", the aliases and the driver's names in a description.
std::vector<std::string> names_in(const EmbeddedFile& file) {
  const Result<Json> parsed = parse_json(file.content, file.name);
  EXPECTS(parsed.ok(), parsed.ok() ? "" : parsed.error().message());
  std::vector<std::string> names;
  const auto own = parsed->find("name");
  if (own != parsed->end() && own->is_string()) names.push_back(own->get<std::string>());
  for (const char* list : {"aliases", "driver_names"}) {
    const auto at = parsed->find(list);
    if (at == parsed->end() || !at->is_array()) continue;
    for (const Json& other : *at) names.push_back(other.get<std::string>());
  }
  return names;
}

std::optional<EmbeddedFile> find(std::span<const EmbeddedFile> files, std::string_view name) {
  const std::string wanted = plain_name(name);
  if (wanted.empty()) return std::nullopt;
  for (const EmbeddedFile& file : files) {
    if (plain_name(file.name) == wanted) return file;
  }
  for (const EmbeddedFile& file : files) {
    for (const std::string& own : names_in(file)) {
      if (plain_name(own) == wanted) return file;
    }
  }
  return std::nullopt;
}

std::vector<std::string> names_of(std::span<const EmbeddedFile> files) {
  std::vector<std::string> names;
  for (const EmbeddedFile& file : files) names.emplace_back(file.name);
  std::sort(names.begin(), names.end());
  return names;
}

/// An error with the nearest known name, else the list of all names; `listing` prints that list.
Error unknown(std::string_view what, std::string_view name, std::string_view where,
              std::span<const EmbeddedFile> files, std::string_view expected,
              std::string_view listing) {
  std::vector<std::string> known = names_of(files);
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  for (const EmbeddedFile& file : files) {
    for (std::string& own : names_in(file)) known.push_back(std::move(own));
  }
  std::string hint = did_you_mean(name, known);
  if (!hint.empty()) hint += " ";
  hint += listing.empty() ? "known: " + list
                          : fmt::format(
                                "{} lists all {}; docs/topology-format.md: how to "
                                "describe your own",
                                listing, files.size());
  return input_error(std::string(where), std::string(what) + " " + in_quotes(name),
                     std::string(expected), hint);
}

/// Whether `name` is the GPU or a variant of it: GH200-96-quad of GH200-96, MI250X-GCD of MI250X.
bool is_variant(std::string_view name, std::string_view gpu) {
  return name.starts_with(gpu) && (name.size() == gpu.size() || name[gpu.size()] == '-');
}

/// A number of GPUs as people name machines: "8xh100", "gpu_4x_a100", "h100 x8".
struct CountedGpu {
  std::string count;
  EmbeddedFile gpu;
};
std::optional<CountedGpu> counted_gpu(std::string_view asked) {
  std::string name = plain_name(asked);
  if (name.starts_with("gpu")) name.erase(0, 3);
  const auto counted = [](const std::string& count, const std::string& gpu) {
    const std::optional<EmbeddedFile> file = find_embedded_gpu(gpu);
    const bool number =
        !count.empty() && count.find_first_not_of("0123456789") == std::string::npos;
    return file && number ? std::optional<CountedGpu>({count, *file}) : std::nullopt;
  };
  const std::size_t first = name.find('x');
  if (first == std::string::npos) return std::nullopt;
  if (auto before = counted(name.substr(0, first), name.substr(first + 1))) return before;
  const std::size_t last = name.rfind('x');
  return counted(name.substr(last + 1), name.substr(0, last));
}

/// What a name that begins so means, of accelerators that are no GPUs.
std::optional<std::string_view> other_accelerator(std::string_view asked) {
  using Prefix = std::pair<std::string_view, std::string_view>;
  static constexpr std::array<Prefix, 8> kPrefixes = {{{"tpu", "a TPU"},
                                                       {"v5e", "a TPU"},
                                                       {"v5lite", "a TPU"},
                                                       {"v5p", "a TPU"},
                                                       {"v6e", "a TPU"},
                                                       {"gaudi", "Gaudi"},
                                                       {"trn", "Trainium"},
                                                       {"trainium", "Trainium"}}};
  const std::string name = plain_name(asked);
  for (const auto& [prefix, meaning] : kPrefixes) {
    if (name.starts_with(prefix)) return meaning;
  }
  return std::nullopt;
}

/// Clusters of the catalog with this GPU or a variant of it, and how to describe one. `count`: the
/// number of GPUs asked for; "" if none was.
Error gpu_as_cluster(std::string_view asked, const EmbeddedFile& gpu, const std::string& count) {
  const std::string place = "topologies/catalog/gpus/" + std::string(gpu.name) + ".json";
  const Result<GpuDescription> wanted = parse_gpu(gpu.content, place);
  std::string with_it;
  for (const EmbeddedFile& file : embedded_clusters()) {
    const Result<MachineDescription> cluster = parse_machine(file.content, file.name);
    if (!wanted || !cluster || !is_variant(cluster->gpu.name, wanted->spec.name)) continue;
    with_it += (with_it.empty() ? "" : ", ") + std::string(file.name);
  }
  const std::string number = count.empty() ? "" : "; --gpus " + count + " is the number of GPUs";
  return input_error(
      "--cluster",
      in_quotes(asked) + (count.empty() ? ", a GPU" : ", GPUs " + std::string(gpu.name)),
      "a cluster, or the path of a description (.json)",
      with_it.empty() ? "the catalog has none with it: describe yours, with \"gpu\": \"" +
                            std::string(gpu.name) +
                            "\", after the description of another (plan topo show dgx-h100; "
                            "docs/topology-format.md)"
                      : "with it: " + with_it + number);
}

bool looks_like_path(std::string_view text) {
  return text.find('/') != std::string_view::npos || text.ends_with(".json");
}

}  // namespace

std::vector<std::string> gpu_catalog() { return names_of(embedded_gpus()); }
std::vector<std::string> cluster_catalog() { return names_of(embedded_clusters()); }

std::optional<EmbeddedFile> find_embedded_cluster(std::string_view name) {
  return find(embedded_clusters(), name);
}

std::optional<EmbeddedFile> find_embedded_gpu(std::string_view name) {
  return find(embedded_gpus(), name);
}

Result<GpuDescription> load_gpu(std::string_view name, std::string_view where) {
  const std::optional<EmbeddedFile> file = find_embedded_gpu(name);
  if (!file) {
    return unknown("unknown GPU", name, where, embedded_gpus(),
                   "a catalog name, or an object with the GPU's data-sheet numbers", "");
  }
  return parse_gpu(file->content, "topologies/catalog/gpus/" + std::string(file->name) + ".json");
}

std::vector<GpuSummary> list_gpus() {
  std::vector<GpuSummary> list;
  for (const std::string& name : gpu_catalog()) {
    const Result<GpuDescription> gpu = load_gpu(name, "catalog");
    EXPECTS(gpu.ok(), gpu.ok() ? "" : gpu.error().message());
    list.push_back({name, gpu->aliases, gpu->spec});
  }
  return list;
}

Result<MachineDescription> load_machine(std::string_view name_or_path) {
  if (const std::optional<EmbeddedFile> file = find_embedded_cluster(name_or_path)) {
    return parse_machine(file->content,
                         "topologies/catalog/clusters/" + std::string(file->name) + ".json");
  }
  const std::string path(name_or_path);
  std::error_code ignored;
  if (looks_like_path(path) || std::filesystem::exists(path, ignored)) {
    constexpr std::int64_t kLimit = std::int64_t{64} << 20;
    const Result<std::string> text = read_file(path, kLimit);
    if (!text) return text.error();
    return parse_machine(*text, path);
  }
  if (const auto gpu = find_embedded_gpu(name_or_path)) {
    return gpu_as_cluster(name_or_path, *gpu, "");
  }
  if (const auto gpus = counted_gpu(name_or_path)) {
    return gpu_as_cluster(name_or_path, gpus->gpu, gpus->count);
  }
  if (const auto other = other_accelerator(name_or_path)) {
    return input_error("--cluster", fmt::format("{}, {}", in_quotes(name_or_path), *other),
                       "GPUs of NVIDIA or AMD: rates, collectives and frameworks of no other "
                       "accelerator are known here",
                       "plan topo list");
  }
  return unknown("unknown cluster", name_or_path, "--cluster", embedded_clusters(),
                 "a catalog name, or the path of a description (.json)", "plan topo list");
}

}  // namespace echelon

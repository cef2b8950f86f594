#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include <fmt/format.h>

#include "core/base/files.hpp"
#include "runtime/io/weights/huggingface.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

/// A HuggingFace tensor and the parameters it consists of.
struct ExportedTensor {
  std::vector<std::pair<Parameter, ForeignPlace>> parts;
};

std::map<std::string, ExportedTensor> exported_tensors(const ModelSpec& model,
                                                       HuggingFaceNames names) {
  std::map<std::string, ExportedTensor> all;
  const std::string prefix = names == HuggingFaceNames::gpt2 ? "transformer." : "model.";
  for (const Parameter& parameter : whole_parameters(model)) {
    ForeignPlace place = foreign_place(names, parameter);
    const std::string name = (place.inside ? prefix : "") + place.name;
    all[name].parts.emplace_back(parameter, std::move(place));
  }
  return all;
}

const Parameter& parameter_named(const std::vector<Parameter>& all, const std::string& name) {
  const auto at = std::ranges::find(all, name, &Parameter::name);
  EXPECTS(at != all.end(), "a parameter of the run: " + name);
  return *at;
}

/// PEFT's tensors: an A and a B for each of the family's modules. Modules that share one of our
/// adapters (queries, keys and values; gate and up) share its A, of which each has a copy, and have
/// their rows of its B. Source: PEFT 5d602fdb, src/peft/utils/save_and_load.py,
/// get_peft_model_state_dict (names without the adapter's own); Megatron-Bridge 067f987d,
/// src/megatron/bridge/models/conversion/peft_bridge.py, which splits fused adapters alike.
std::map<std::string, ExportedTensor> exported_adapters(const ModelSpec& model,
                                                        const Adapters& adapters,
                                                        HuggingFaceNames names,
                                                        std::set<std::string>& modules) {
  std::map<std::string, ExportedTensor> all;
  const auto [trained, frozen] = run_parameters(model, adapters);
  const std::string prefix = names == HuggingFaceNames::gpt2 ? "transformer." : "model.";
  for (const Parameter& b : trained) {
    const std::size_t lora = b.name.find(".lora_B.");
    if (lora == std::string::npos) continue;
    const std::string ours = b.name.substr(0, lora);
    const std::string layer = ours.substr(0, ours.find('.', ours.find('.') + 1) + 1);
    const std::string matrix = ours.substr(layer.size());
    const bool of_heads =
        matrix == "attention.q" || matrix == "attention.k" || matrix == "attention.v";
    const bool of_fc1 = matrix == "mlp.gate" || matrix == "mlp.up";
    const std::string shared = of_heads ? layer + "attention.qkv" : layer + "mlp.fc1";
    const Parameter& a =
        parameter_named(trained, (of_heads || of_fc1 ? shared : ours) + ".lora_A.weight");
    const ForeignPlace of = foreign_place(names, parameter_named(frozen, ours + ".weight"));
    const std::string module = of.name.substr(0, of.name.rfind('.'));
    std::size_t end = module.rfind('.');
    if (of.transposed) end = module.rfind('.', end - 1);  // attn.c_proj, as there is mlp.c_proj
    modules.insert(module.substr(end + 1));
    const std::string at = "base_model.model." + prefix + module;
    ExportedTensor& of_a = all[at + ".lora_A.weight"];
    ForeignPlace place;
    place.shape = shape_of(a);
    if (of_a.parts.empty()) of_a.parts.emplace_back(a, place);
    place.shape = {of.transposed ? of.shape[1] : of.shape[0], b.columns};
    place.first = of.first;
    all[at + ".lora_B.weight"].parts.emplace_back(b, std::move(place));
  }
  return all;
}

/// Copies one part into the whole foreign tensor.
void place_part(const Parameter& parameter, const ForeignPlace& place, const char* ours,
                char* theirs, std::int64_t size) {
  const auto bytes = static_cast<std::size_t>(size);
  if (!place.transposed) {
    std::memcpy(theirs + place.first * parameter.columns * size, ours,
                static_cast<std::size_t>(parameter.count()) * bytes);
    return;
  }
  const std::int64_t width = place.shape[1];
  for (std::int64_t column = 0; column < parameter.columns; ++column) {
    char* row = theirs + (column * width + place.first) * size;
    for (std::int64_t i = 0; i < parameter.rows; ++i) {
      std::memcpy(row + i * size, ours + (i * parameter.columns + column) * size, bytes);
    }
  }
}

Status write_tensors(const Disk& disk, const std::string& path,
                     const std::map<std::string, ExportedTensor>& tensors,
                     const SafetensorsHeader& header, std::string_view head, Element element,
                     const ReadWhole& read) {
  const std::int64_t size = bytes_of(element);
  const std::int64_t bytes = header.data + header.tensors.back().end;
  const Result<Disk::File> file = disk.create(path, bytes);
  if (!file) return file.error();
  const Status headed = disk.write(*file, 0, head.data(), static_cast<std::int64_t>(head.size()));
  if (!headed) return headed;
  std::vector<char> ours;
  std::vector<char> theirs;
  for (const TensorEntry& tensor : header.tensors) {
    theirs.resize(static_cast<std::size_t>(tensor.end - tensor.begin));
    for (const auto& [parameter, place] : tensors.at(tensor.name).parts) {
      ours.resize(static_cast<std::size_t>(parameter.count() * size));
      const Status got = read(parameter, ours.data());
      if (!got) return got;
      place_part(parameter, place, ours.data(), theirs.data(), size);
    }
    const Status written =
        disk.write(*file, header.data + tensor.begin, theirs.data(), tensor.end - tensor.begin);
    if (!written) return written;
  }
  return disk.sync(*file);
}

/// A folder's tensors, then its configuration, a file's name and text.
Status write_folder(const std::string& directory,
                    const std::map<std::string, ExportedTensor>& tensors, const char* file,
                    const std::pair<std::string, std::string>& config, Element element,
                    const ReadWhole& read, const Disk& disk) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return environment_error(directory, "cannot be made: " + reason_of(error.value()));
  SafetensorsHeader header;
  header.metadata["format"] = "pt";  // transformers refuses files without it
  for (const auto& [name, tensor] : tensors) {
    header.tensors.push_back({name, tensor_type(element), tensor.parts.front().second.shape});
  }
  const std::string head = place_safetensors(header);
  const Status fits = disk.check_free(directory, header.data + header.tensors.back().end);
  if (!fits) return fits;
  const std::string target = (fs::path(directory) / file).string();
  const std::string aside = target + ".tmp";
  Status done = disk.remove_all(aside);
  if (done) done = write_tensors(disk, aside, tensors, header, head, element, read);
  if (done) done = disk.rename(aside, target);
  (void)disk.remove_all(aside);  // the unfinished file, or the previous one
  if (done) done = disk.sync_directory(directory);
  if (!done) return done;
  return write_file((fs::path(directory) / config.first).string(), config.second);
}

}  // namespace

Status export_huggingface(const std::string& directory, const ModelSpec& model, Element element,
                          const ReadWhole& read, const Disk& disk) {
  HuggingFaceNames names{};
  const Result<std::string> config = huggingface_config(model, element, names);
  if (!config) return config.error();
  return write_folder(directory, exported_tensors(model, names), "model.safetensors",
                      {"config.json", *config}, element, read, disk);
}

Status export_peft(const std::string& directory, const RunIdentity& run, Element element,
                   const ReadWhole& read, const Disk& disk) {
  HuggingFaceNames names{};
  const Result<std::string> config = huggingface_config(run.model, element, names);
  if (!config) return config.error();
  std::set<std::string> modules;
  const auto tensors = exported_adapters(run.model, *run.adapters, names, modules);
  const bool transposed = names == HuggingFaceNames::gpt2;
  return write_folder(
      directory, tensors, "adapter_model.safetensors",
      {"adapter_config.json",
       peft_config(
           {run.adapters->rank, run.lora_alpha, {modules.begin(), modules.end()}, transposed})},
      element, read, disk);
}

Status export_checkpoint(const std::string& checkpoint, const std::string& directory,
                         const Disk& disk) {
  const Result<CheckpointContents> contents = read_contents(checkpoint);
  if (!contents) return contents.error();
  const Result<CheckpointReader> reader = CheckpointReader::open(checkpoint, contents->format);
  if (!reader) return reader.error();
  const RunIdentity& run = contents->run;
  const ReadWhole read = [&](const Parameter& whole, void* out) {
    const StateSpan span{&whole, StateKind::weight, 0, whole.count(), out};
    return reader->read(std::span(&span, 1));
  };
  const Element element = contents->format.weight;
  if (run.adapters) return export_peft(directory, run, element, read, disk);
  return export_huggingface(directory, run.model, element, read, disk);
}

}  // namespace echelon

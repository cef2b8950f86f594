#include <cstring>
#include <filesystem>
#include <map>

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

}  // namespace

Status export_huggingface(const std::string& directory, const ModelSpec& model, Element element,
                          const ReadWhole& read, const Disk& disk) {
  HuggingFaceNames names{};
  const Result<std::string> config = huggingface_config(model, element, names);
  if (!config) return config.error();
  std::error_code error;
  fs::create_directories(directory, error);
  if (error) return environment_error(directory, "cannot be made: " + reason_of(error.value()));
  const std::map<std::string, ExportedTensor> tensors = exported_tensors(model, names);
  SafetensorsHeader header;
  header.metadata["format"] = "pt";  // transformers refuses files without it
  for (const auto& [name, tensor] : tensors) {
    header.tensors.push_back({name, tensor_type(element), tensor.parts.front().second.shape});
  }
  const std::string head = place_safetensors(header);
  const Status fits = disk.check_free(directory, header.data + header.tensors.back().end);
  if (!fits) return fits;
  const std::string target = (fs::path(directory) / "model.safetensors").string();
  const std::string aside = target + ".tmp";
  Status done = disk.remove_all(aside);
  if (done) done = write_tensors(disk, aside, tensors, header, head, element, read);
  if (done) done = disk.rename(aside, target);
  (void)disk.remove_all(aside);  // the unfinished file, or the previous one
  if (done) done = disk.sync_directory(directory);
  if (!done) return done;
  return write_file((fs::path(directory) / "config.json").string(), *config);
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
  return export_huggingface(directory, run.model, contents->format.weight, read, disk);
}

}  // namespace echelon

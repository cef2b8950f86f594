// Finds the newest complete checkpoint, and reads it under any split.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include <fmt/format.h>

#include "core/base/files.hpp"
#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/io/weights/checkpoint_layout.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kLongestManifest = std::int64_t{64} << 20;

Result<CheckpointManifest> read_manifest(const std::string& path) {
  const std::string file = (std::filesystem::path(path) / "manifest.json").string();
  const Result<std::string> text = read_file(file, kLongestManifest);
  if (!text) return text.error();
  return parse_manifest(*text, file);
}

/// Checks every piece of a file against its hash. Hashing takes longer than reading, so threads
/// share it.
Status verify_file(const std::string& path, const CheckpointFile& expected) {
  const Result<InputFile> file = InputFile::open(path);
  if (!file) return file.error();
  const auto pieces = static_cast<std::int64_t>(expected.pieces.size());
  if (file->size() != expected.bytes || pieces != piece_count(expected.bytes)) {
    return input_error(path, fmt::format("{} bytes", file->size()),
                       fmt::format("{} bytes, as the manifest says", expected.bytes));
  }
  std::atomic<std::int64_t> next = 0;
  std::mutex mutex;
  std::map<std::int64_t, Error> wrong;  // by piece: the first error is reported
  const auto work = [&] {
    for (std::int64_t piece = next++; piece < pieces; piece = next++) {
      const Result<std::string> hash = piece_fingerprint(*file, piece);
      if (hash && *hash == expected.pieces[static_cast<std::size_t>(piece)]) continue;
      const std::lock_guard lock(mutex);
      wrong.emplace(
          piece, hash ? input_error(path,
                                    fmt::format("checksum mismatch in the 16 MiB piece at byte {}",
                                                piece * kPieceBytes),
                                    "what was written")
                      : hash.error());
    }
  };
  {
    constexpr std::int64_t kMaxThreads = 8;
    std::vector<std::jthread> threads;
    for (std::int64_t i = 1; i < std::min(kMaxThreads, pieces); ++i) threads.emplace_back(work);
    work();
  }
  if (!wrong.empty()) return wrong.begin()->second;
  return Done{};
}

/// The manifest of a checkpoint whose files all match it.
Result<CheckpointManifest> verify(const std::string& path) {
  Result<CheckpointManifest> manifest = read_manifest(path);
  if (!manifest) return manifest;
  for (const CheckpointFile& file : manifest->files) {
    const Status whole = verify_file((std::filesystem::path(path) / file.name).string(), file);
    if (!whole) return whole.error();
  }
  return manifest;
}

/// The meaning of the state depends on these.
Status check_same_model(const std::string& path, const RunIdentity& found, const RunIdentity& run) {
  const std::string difference = first_difference(found.model, run.model);
  if (difference.empty()) return Done{};
  return input_error(path, "a checkpoint of another model: " + difference,
                     fmt::format("a checkpoint of {}", run.model.name),
                     "choose another directory, or the plan it was written by");
}

std::vector<std::string> differences_told(const RunIdentity& found, const RunIdentity& run) {
  std::vector<std::string> notes;
  if (found.plan_hash != run.plan_hash) {
    notes.push_back(fmt::format("written under another plan ({}, {}); this one is {} ({})",
                                found.plan, found.plan_hash, run.plan, run.plan_hash));
  }
  if (found.data != run.data) {
    notes.push_back(fmt::format("written while reading {}; now it is {}", found.data, run.data));
  }
  return notes;
}

Status read_span(const SafetensorsFile& file, const StateSpan& span, Element element) {
  const Parameter& parameter = *span.parameter;
  const TensorEntry* tensor = file.find(parameter.name);
  if (tensor == nullptr) {
    return input_error(file.path(), "no tensor " + parameter.name, "all tensors of the model");
  }
  if (tensor->shape != shape_of(parameter) || tensor->type != tensor_type(element)) {
    return input_error(
        file.path(),
        fmt::format("{} is {} {}", parameter.name, name_of(tensor->type),
                    shape_text(tensor->shape)),
        fmt::format("{} {}", name_of(tensor_type(element)), shape_text(shape_of(parameter))));
  }
  const std::int64_t size = bytes_of(element);
  std::memset(span.data, 0, static_cast<std::size_t>((span.end - span.begin) * size));
  Status fine = Done{};
  for_each_piece(parameter, span.begin, span.end,
                 [&](std::int64_t global, std::int64_t local, std::int64_t count) {
                   if (!fine) return;
                   char* data = static_cast<char*>(span.data) + (local - span.begin) * size;
                   fine = file.read(*tensor, global, count, data, element);
                 });
  return fine;
}

}  // namespace

Result<std::optional<FoundCheckpoint>> find_checkpoint(const std::string& directory,
                                                       const RunIdentity& run) {
  const Result<std::vector<std::int64_t>> steps = checkpoint_steps(directory);
  if (!steps) return steps.error();
  std::vector<std::string> damaged;
  for (const std::int64_t step : *steps) {
    const std::string path = checkpoint_path(directory, step);
    Result<CheckpointManifest> manifest = verify(path);
    if (!manifest) {
      damaged.push_back("skipped a damaged checkpoint: " + manifest.error().message());
      continue;
    }
    const Status same = check_same_model(path, manifest->contents.run, run);
    if (!same) return same.error();
    FoundCheckpoint found{path, std::move(manifest->contents), std::move(damaged)};
    for (std::string& note : differences_told(found.contents.run, run)) {
      found.notes.push_back(path + ": " + std::move(note));
    }
    return std::optional(std::move(found));
  }
  if (damaged.empty()) return {std::nullopt};
  return input_error(directory, fmt::format("no intact checkpoint: {}", fmt::join(damaged, "; ")),
                     "at least one that is not damaged", "start again in an empty directory");
}

Result<CheckpointContents> read_contents(const std::string& path) {
  Result<CheckpointManifest> manifest = read_manifest(path);
  if (!manifest) return manifest.error();
  return std::move(manifest->contents);
}

Status read_checkpoint(const std::string& path, const StateFormat& format,
                       std::span<const StateSpan> spans) {
  for (const StateKindInfo& info : kStateKinds) {
    const StateKind kind = info.kind;
    const auto of_kind = [kind](const StateSpan& span) { return span.kind == kind; };
    if (std::none_of(spans.begin(), spans.end(), of_kind)) continue;
    const std::optional<Element> element = element_of(format, kind);
    EXPECTS(element.has_value(), "spans of what the format has");
    const Result<SafetensorsFile> file =
        SafetensorsFile::open((std::filesystem::path(path) / info.file).string());
    if (!file) return file.error();
    for (const StateSpan& span : spans) {
      if (!of_kind(span)) continue;
      const Status read = read_span(*file, span, *element);
      if (!read) return read;
    }
  }
  return Done{};
}

}  // namespace echelon

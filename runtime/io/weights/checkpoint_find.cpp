// Finds the newest complete checkpoint, by all members together.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include <fmt/format.h>

#include "core/base/content_hash.hpp"
#include "core/base/files.hpp"
#include "runtime/io/weights/checkpoint.hpp"
#include "runtime/io/weights/checkpoint_layout.hpp"

namespace echelon {
namespace {

constexpr std::int64_t kLongestManifest = std::int64_t{64} << 20;

std::string manifest_path(const std::string& checkpoint) {
  return (std::filesystem::path(checkpoint) / "manifest.json").string();
}

Result<CheckpointManifest> read_manifest(const std::string& path) {
  const std::string file = manifest_path(path);
  const Result<std::string> text = read_file(file, kLongestManifest);
  if (!text) return text.error();
  return parse_manifest(*text, file);
}

/// Checks a member's share of the pieces of a file against their hashes: those whose number, added
/// to `first`, is the member's modulo the members. Hashing takes longer than reading, so threads
/// share it.
Status verify_file(const std::string& path, const CheckpointFile& expected, std::int64_t first,
                   const CheckpointGroup& group, std::int64_t& hashed) {
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
      if ((first + piece) % group.members != group.member) continue;
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
    const std::int64_t most = std::max<std::int64_t>(1, kMaxThreads / group.members);
    std::vector<std::jthread> threads;
    for (std::int64_t i = 1; i < std::min(most, pieces); ++i) threads.emplace_back(work);
    work();
  }
  hashed += file->bytes_read();
  if (!wrong.empty()) return wrong.begin()->second;
  return Done{};
}

/// A member's share of all files; adds its bytes to `hashed`.
Status verify(const std::string& path, const CheckpointManifest& manifest,
              const CheckpointGroup& group, std::int64_t& hashed) {
  std::int64_t first = 0;
  for (const CheckpointFile& file : manifest.files) {
    const std::string name = (std::filesystem::path(path) / file.name).string();
    if (const Status whole = verify_file(name, file, first, group, hashed); !whole) return whole;
    first += static_cast<std::int64_t>(file.pieces.size());
  }
  return Done{};
}

std::string in_words(const StateFormat& format) {
  std::string text = fmt::format("{} weights", name_of(tensor_type(format.weight)));
  if (format.master) text += fmt::format(" with {} masters", name_of(tensor_type(*format.master)));
  return text + fmt::format(" and {} moments", name_of(tensor_type(format.moment)));
}

std::string adapters_in_words(const RunIdentity& run) {
  if (!run.adapters) return "all parameters trained";
  return fmt::format("adapters {} with alpha {:g}", run.adapters->text(), run.lora_alpha);
}

/// The meaning of the state depends on these.
Status check_same_run(const std::string& path, const CheckpointContents& found,
                      const RunIdentity& run, const StateFormat& format) {
  const std::string difference = first_difference(found.run.model, run.model);
  if (!difference.empty()) {
    return input_error(path, "a checkpoint of another model: " + difference,
                       fmt::format("a checkpoint of {}", run.model.name),
                       "choose another directory, or the plan it was written by");
  }
  const std::string adapters = adapters_in_words(found.run);
  if (adapters != adapters_in_words(run)) {
    return input_error(
        path, "a checkpoint with " + adapters, adapters_in_words(run),
        "choose another directory, or the --lora and --lora-alpha it was written with");
  }
  if (found.format == format) return Done{};
  return input_error(path, "a checkpoint in another precision: " + in_words(found.format),
                     in_words(format),
                     "plan with the --precision it was written in, or choose another directory");
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

/// One search for a checkpoint.
class Search {
 public:
  Search(const std::string& directory, const CheckpointGroup& group)
      : directory_(directory), group_(group) {}

  /// The leader lists the folder.
  Status list() {
    Status listed = Done{};
    if (group_.leads()) {
      Result<std::vector<std::int64_t>> steps = checkpoint_steps(directory_);
      if (steps)
        steps_ = *std::move(steps);
      else
        listed = steps.error();
    }
    return agreed(group_, listed);
  }

  /// The next step whose manifest the leader can read, for all; none if there is no more. An error
  /// if it is of a newer version of this program.
  Result<std::optional<std::int64_t>> propose() {
    std::string proposal;  // step and hash of the manifest
    Status fine = Done{};
    while (group_.leads() && fine && proposal.empty() && next_ < steps_.size()) {
      const std::int64_t step = steps_[next_++];
      const std::string file = manifest_path(checkpoint_path(directory_, step));
      const Result<std::string> text = read_file(file, kLongestManifest);
      const Status readable = text ? check_manifest_version(*text, file) : text.error();
      const Status whole = !readable ? readable : parsed(*text, file);
      if (text && !readable)
        fine = readable;
      else if (!whole)
        damaged.push_back("skipped a damaged checkpoint: " + whole.error().message());
      else
        proposal = fmt::format("{} {}", step, content_hash(*text));
    }
    if (const Status all = agreed(group_, fine); !all) return all.error();
    proposal = group_.exchange(proposal).front();
    if (proposal.empty()) return {std::nullopt};
    std::int64_t step = 0;
    const auto [end, bad] =
        std::from_chars(proposal.data(), proposal.data() + proposal.size(), step);
    EXPECTS(bad == std::errc(), "the leader sends a number");
    hash_ = proposal.substr(static_cast<std::size_t>(end + 1 - proposal.data()));
    return {std::optional(step)};
  }

  /// The manifest as this member sees it; an error unless it is the leader's.
  Result<CheckpointManifest> own_view(const std::string& path) {
    const std::string file = manifest_path(path);
    const auto until = std::chrono::steady_clock::now() +
                       std::chrono::duration<double>(group_.patience.in(kSecond));
    for (;;) {
      const Result<std::string> text = read_file(file, kLongestManifest);
      if (text && content_hash(*text) == hash_) return parse_manifest(*text, file);
      if (std::chrono::steady_clock::now() > until) {
        return environment_error(
            file,
            (text ? "another manifest than rank 0 sees" : text.error().found) +
                fmt::format("; rank 0 sees one with the hash {}", hash_),
            "all ranks need the same --checkpoint-dir on a file system that they share");
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }

  std::vector<std::string> damaged;  ///< notes; the leader's are complete

 private:
  static Status parsed(const std::string& text, const std::string& file) {
    const Result<CheckpointManifest> manifest = parse_manifest(text, file);
    return manifest ? Status(Done{}) : Status(manifest.error());
  }

  const std::string& directory_;
  const CheckpointGroup& group_;
  std::vector<std::int64_t> steps_;  ///< newest first; the leader's
  std::size_t next_ = 0;
  std::string hash_;
};

}  // namespace

/// Step 1: the leader proposes. Step 2: all look at the proposal. Step 3: all hash their share.
Result<std::optional<FoundCheckpoint>> find_checkpoint(const std::string& directory,
                                                       const RunIdentity& run,
                                                       const StateFormat& format,
                                                       const CheckpointGroup& group) {
  Search search(directory, group);
  if (const Status listed = search.list(); !listed) return listed.error();
  std::int64_t hashed = 0;
  for (;;) {
    const Result<std::optional<std::int64_t>> step = search.propose();
    if (!step) return step.error();
    if (!*step) break;
    const std::string path = checkpoint_path(directory, **step);
    Result<CheckpointManifest> manifest = search.own_view(path);
    Status fine = manifest ? Status(Done{}) : Status(manifest.error());
    if (fine) fine = check_same_run(path, manifest->contents, run, format);
    if (const Status all = agreed(group, fine); !all) return all.error();
    if (const Status whole = agreed(group, verify(path, *manifest, group, hashed)); !whole) {
      search.damaged.push_back("skipped a damaged checkpoint: " + whole.error().message());
      continue;
    }
    FoundCheckpoint found{path, std::move(manifest->contents), std::move(search.damaged), hashed};
    for (std::string& note : differences_told(found.contents.run, run)) {
      found.notes.push_back(path + ": " + std::move(note));
    }
    return std::optional(std::move(found));
  }
  Status none = Done{};
  if (!search.damaged.empty() && group.leads()) {
    none = input_error(directory,
                       fmt::format("no intact checkpoint: {}", fmt::join(search.damaged, "; ")),
                       "at least one that is not damaged", "start again in an empty directory");
  }
  if (const Status all = agreed(group, none); !all) return all.error();
  return {std::nullopt};
}

Result<CheckpointContents> read_contents(const std::string& path) {
  Result<CheckpointManifest> manifest = read_manifest(path);
  if (!manifest) return manifest.error();
  return std::move(manifest->contents);
}

}  // namespace echelon

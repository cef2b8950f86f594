#include "runtime/training/disk_space.hpp"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>

#include "core/base/files.hpp"
#include "runtime/io/weights/checkpoint_layout.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

/// The folder, or the nearest one above it that exists.
std::string existing_part(const std::string& path) {
  std::error_code ignored;
  fs::path at = fs::absolute(path, ignored).lexically_normal();
  while (!fs::exists(at, ignored) && at.has_relative_path()) at = at.parent_path();
  return at.string();
}

/// What the run will add to one disk.
struct Demand {
  std::string where;       ///< flag and folder
  std::string what;        ///< "3 checkpoints of 4.1 GB"
  std::string path;        ///< on that disk
  std::int64_t bytes = 0;  ///< more than there is
};

dev_t device_of(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_dev : 0;
}

/// Bytes of what an earlier run left half-written, which the next checkpoint removes.
std::int64_t left_over(const std::string& directory) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator at(directory, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (!name.starts_with("step_") || !name.ends_with(".tmp")) continue;
    std::error_code ignored;
    for (const fs::directory_entry& file : fs::directory_iterator(at->path(), ignored)) {
      struct stat info {};
      constexpr std::int64_t kBlock = 512;  // stat(2)
      if (::stat(file.path().c_str(), &info) == 0) bytes += kBlock * info.st_blocks;
    }
  }
  return bytes;
}

/// Only an attempt shows whether a folder can be written: root passes every permission check. A
/// crash leaves a name that the next checkpoint removes.
Status check_writable_folder(const std::string& directory, const Disk& disk) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (error)
    return environment_error("--checkpoint-dir: " + directory,
                             "cannot be made: " + reason_of(error.value()));
  const std::string probe = (fs::path(directory) / "step_probe.tmp").string();
  Status fine = disk.remove_all(probe);
  if (fine) fine = disk.make_directory(probe);
  if (fine) fine = disk.remove_all(probe);
  if (fine) return fine;
  Error named = fine.error();
  named.where = "--checkpoint-dir: " + named.where;
  return named;
}

/// The sums of all demands on one disk; an error if one has too little space.
Status check_disks(const std::vector<Demand>& demands, const Disk& disk) {
  std::map<dev_t, Demand> disks;
  for (const Demand& demand : demands) {
    Demand& sum = disks[device_of(demand.path)];
    sum.bytes += demand.bytes;
    sum.path = demand.path;
    sum.where += (sum.where.empty() ? "" : ", ") + demand.where;
    sum.what += (sum.what.empty() ? "" : " and ") + demand.what;
  }
  for (const auto& [device, sum] : disks) {
    const Result<std::int64_t> left = disk.free_bytes(sum.path);
    if (!left) return left.error();
    if (sum.bytes <= *left) continue;
    return environment_error(sum.where,
                             fmt::format("{} need {} more on the disk, {} are free", sum.what,
                                         size_text(sum.bytes), size_text(*left)),
                             "free some, keep fewer checkpoints (--keep-last), or write elsewhere");
  }
  return Done{};
}

}  // namespace

KeepPolicy keep_of(const RunSettings& settings) {
  return {settings.keep_last, settings.keep_every};
}

Result<std::vector<std::string>> check_space(const PlanFile& plan, const StateFormat& format,
                                             const RunSettings& settings, const StartPoint& start,
                                             const Disk& disk) {
  std::vector<std::string> notes;
  std::vector<Demand> demands;
  const std::int64_t bytes = checkpoint_bytes(plan.model, format, plan.job.adapters);
  const std::string& directory = settings.checkpoint_dir;
  std::int64_t later = 0;  // checkpoints that the policy adds without limit
  if (!directory.empty() && start.end > start.step) {
    if (const Status fine = check_writable_folder(directory, disk); !fine) return fine.error();
    const Result<std::vector<std::int64_t>> there = checkpoint_steps(directory);
    if (!there) return there.error();
    const auto have = static_cast<std::int64_t>(there->size());
    const std::vector<std::int64_t> planned =
        planned_checkpoints(start.step, start.end, settings.checkpoint_every);
    const KeepPolicy keep = keep_of(settings);
    const std::int64_t all = most_at_once(*there, planned, keep);
    const std::int64_t bounded =
        keep.last == 0 ? have + 1 : std::min(all, most_at_once(*there, planned, {keep.last, 0}));
    later = all - bounded;
    demands.push_back(
        {"--checkpoint-dir: " + directory,
         fmt::format("{} at a time of {} each",
                     bounded == 1 ? "one checkpoint" : fmt::format("{} checkpoints", bounded),
                     size_text(bytes)),
         existing_part(directory), (bounded - have) * bytes - left_over(directory)});
  }
  if (!settings.export_to.empty()) {
    StateFormat weights;
    weights.weight = format.weight;
    std::int64_t exported = 0;
    for (const StateFile& file : state_files(plan.model, weights)) {
      if (file.kind == StateKind::weight) exported = file.bytes();
    }
    demands.push_back({"--export: " + settings.export_to,
                       "an export, with the state it is made of,",
                       existing_part(settings.export_to), exported + bytes});
  }
  if (const Status fit = check_disks(demands, disk); !fit) return fit.error();
  if (later > 0) {
    demands.front().bytes += later * bytes;
    demands.front().what =
        fmt::format("all checkpoints of this run, of {} each,", size_text(bytes));
    if (const Status fit = check_disks(demands, disk); !fit) notes.push_back(fit.error().message());
  }
  return notes;
}

}  // namespace echelon

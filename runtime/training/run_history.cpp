#include "runtime/training/run_history.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <system_error>

#include "core/base/files.hpp"

namespace echelon {
namespace {

constexpr double kNanoseconds = 1e-9;

/// Seconds since 1970.
double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The file's time; 0 without one.
double time_of_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return 0;
  return static_cast<double>(info.st_mtim.tv_sec) +
         kNanoseconds * static_cast<double>(info.st_mtim.tv_nsec);
}

/// By this machine's clock: that of a file server may differ.
void set_time_of_file(const std::string& path, double time) {
  timespec at{};
  at.tv_sec = static_cast<time_t>(time);
  at.tv_nsec = static_cast<long>((time - static_cast<double>(at.tv_sec)) / kNanoseconds);
  const timespec both[2] = {at, at};
  ::utimensat(AT_FDCWD, path.c_str(), both, 0);
}

}  // namespace

RunHistory::RunHistory(std::string folder) : folder_(std::move(folder)) {
  const double now = wall_clock();
  starts_.push_back({.began = now, .computes = {}, .last_seen = now, .end = ""});
}

std::string RunHistory::begin() {
  if (folder_.empty()) return {};
  begun_ = true;
  std::string note;
  RunStart own = starts_.back();
  own.computes = own.last_seen = wall_clock();
  starts_.clear();
  std::error_code ignored;
  if (std::filesystem::exists(path(), ignored)) {
    constexpr std::int64_t kLongest = 1 << 20;
    const Result<std::string> text = read_file(path(), kLongest);
    Result<std::vector<RunStart>> before =
        text ? parse_run_starts(*text, path()) : Result<std::vector<RunStart>>(text.error());
    if (before) {
      starts_ = *std::move(before);
    } else {
      note = before.error().message() + "; the starts of this training are counted anew";
    }
  }
  if (!starts_.empty() && starts_.back().end.empty()) {
    RunStart& last = starts_.back();
    last.last_seen = std::min(own.began, std::max(last.last_seen, time_of_file(path())));
  }
  const std::size_t most = kMost - 1;
  if (starts_.size() > most) starts_.erase(starts_.begin(), starts_.end() - most);
  starts_.push_back(own);
  keep();
  return note;
}

void RunHistory::keep() const {
  if (write_file(path(), run_starts_to_json(starts_)))
    set_time_of_file(path(), starts_.back().last_seen);
}

void RunHistory::alive() {
  constexpr double kSeldom = 1;  // seconds
  const double now = wall_clock();
  if (!begun_ || now - starts_.back().last_seen < kSeldom) return;
  starts_.back().last_seen = now;
  set_time_of_file(path(), now);
}

void RunHistory::wrote(Bytes bytes, Seconds write) {
  ++checkpoints_;
  checkpoint_ = bytes;
  write_ += write;
}

MeasuredGoodput RunHistory::end(const std::string& how) {
  if (!begun_) return {};
  starts_.back().last_seen = wall_clock();
  starts_.back().end = how;
  keep();
  MeasuredGoodput out = goodput_of_starts(starts_);
  out.checkpoints = checkpoints_;
  if (checkpoints_ == 0) return out;
  out.checkpoint = checkpoint_;
  out.write = write_ / static_cast<double>(checkpoints_);
  out.stall = std::min(out.write, stall_ / static_cast<double>(checkpoints_));
  return out;
}

}  // namespace echelon

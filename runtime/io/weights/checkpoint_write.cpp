// Writes a checkpoint in four phases, between which all members agree that no error occurred.
#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "core/base/files.hpp"
#include "runtime/io/weights/checkpoint_writer.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

void add(const MemberReport::File& one, MemberReport::File& all) {
  EXPECTS(one.written.size() == all.written.size() && one.pieces.size() == all.pieces.size(),
          "members write the same files");
  for (std::size_t i = 0; i < one.written.size(); ++i) all.written[i] += one.written[i];
  for (std::size_t i = 0; i < one.pieces.size(); ++i) {
    if (!one.pieces[i].empty()) all.pieces[i] = one.pieces[i];
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(const std::string& directory, const CheckpointContents& contents,
                                   std::span<const StateSpan> spans, const CheckpointGroup& group,
                                   const KeepPolicy& keep, const Disk& disk)
    : directory_(directory),
      contents_(contents),
      spans_(spans),
      group_(group),
      keep_(keep),
      disk_(disk),
      files_(state_files(contents.run.model, contents.format, contents.run.adapters)),
      target_(checkpoint_path(directory, contents.progress.step)),
      aside_(target_ + ".tmp") {}

Status CheckpointWriter::carry_out(int phase) {
  constexpr Status (CheckpointWriter::*kWork[kPhases])() = {
      &CheckpointWriter::lay_out, &CheckpointWriter::write_parts, &CheckpointWriter::look_at_pieces,
      &CheckpointWriter::complete};
  if (of_leader(phase) && !group_.leads()) return Done{};
  return (this->*kWork[phase])();
}

void CheckpointWriter::abandon() const {
  if (group_.leads()) (void)disk_.remove_all(aside_);
}

std::string CheckpointWriter::inside(std::string_view name) const {
  return (fs::path(aside_) / name).string();
}

std::string CheckpointWriter::report_of(int member) const {
  return inside(fmt::format("report_{}", member));
}

/// Removes entries that an earlier run left half-written or half-removed.
Status CheckpointWriter::sweep() {
  std::error_code error;
  std::vector<std::string> left;
  for (fs::directory_iterator at(directory_, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("step_") && name.ends_with(".tmp")) left.push_back(at->path().string());
  }
  for (const std::string& path : left) {
    const Status removed = disk_.remove_all(path);
    if (!removed) return removed;
  }
  return Done{};
}

/// Phase 1, by the leader: files of their full size, with headers.
Status CheckpointWriter::lay_out() {
  std::error_code error;
  fs::create_directories(directory_, error);
  if (error) {
    return environment_error(directory_, "cannot be made: " + reason_of(error.value()));
  }
  const Status swept = sweep();
  if (!swept) return swept;
  const Status fits = disk_.check_free(
      directory_, checkpoint_bytes(contents_.run.model, contents_.format, contents_.run.adapters));
  if (!fits) return fits;
  const Status made = disk_.make_directory(aside_);
  if (!made) return made;
  for (const StateFile& file : files_) {
    const Status created = write_new(inside(file.name), file.head, file.bytes());
    if (!created) return created;
  }
  return Done{};
}

Status CheckpointWriter::write_new(const std::string& path, std::string_view content,
                                   std::int64_t bytes) {
  const Result<Disk::File> file = disk_.create(path, bytes);
  if (!file) return file.error();
  const Status written =
      disk_.write(*file, 0, content.data(), static_cast<std::int64_t>(content.size()));
  if (!written) return written;
  return disk_.sync(*file);
}

/// Phase 2, by every member: the elements of its own spans, each to its place.
Status CheckpointWriter::write_parts() {
  report_.files.resize(files_.size());
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const Status written = write_file_parts(files_[i], report_.files[i]);
    if (!written) return written;
  }
  return Done{};
}

Status CheckpointWriter::write_file_parts(const StateFile& file, MemberReport::File& report) {
  std::map<std::string_view, std::size_t> places;
  const std::vector<TensorEntry>& tensors = file.header.tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) places[tensors[i].name] = i;
  report.written.assign(tensors.size(), 0);
  const Result<Disk::File> out = disk_.open(inside(file.name));
  if (!out) return out.error();
  for (const StateSpan& span : spans_) {
    if (span.kind != file.kind || !span.parameter->counted) continue;
    const auto place = places.find(span.parameter->name);
    EXPECTS(place != places.end(), "a parameter of the model: " + span.parameter->name);
    const Status written =
        write_span(span, file, tensors[place->second], *out, report.written[place->second]);
    if (!written) return written;
  }
  return disk_.sync(*out);
}

Status CheckpointWriter::write_span(const StateSpan& span, const StateFile& file,
                                    const TensorEntry& tensor, const Disk::File& out,
                                    std::int64_t& written) {
  const std::int64_t size = bytes_of(file.element);
  Status fine = Done{};
  const void* block = span.data;
  if (group_.read) {
    host_.resize(static_cast<std::size_t>((span.end - span.begin) * size));
    group_.read(span.data, host_.data(), (span.end - span.begin) * size);
    block = host_.data();
  }
  for_each_piece(*span.parameter, span.begin, span.end,
                 [&](std::int64_t global, std::int64_t local, std::int64_t count) {
                   if (!fine) return;
                   const char* data = static_cast<const char*>(block) + (local - span.begin) * size;
                   fine = disk_.write(out, file.header.data + tensor.begin + global * size, data,
                                      count * size);
                   written += count;
                 });
  return fine;
}

/// Phase 3, by every member: fingerprints of its share of the pieces, whoever wrote them.
Status CheckpointWriter::look_at_pieces() {
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const Result<InputFile> file = InputFile::open(inside(files_[i].name));
    if (!file) return file.error();
    std::vector<std::string>& pieces = report_.files[i].pieces;
    pieces.resize(static_cast<std::size_t>(piece_count(file->size())));
    for (std::size_t piece = 0; piece < pieces.size(); ++piece) {
      if (static_cast<int>(piece % static_cast<std::size_t>(group_.members)) != group_.member) {
        continue;
      }
      Result<std::string> hash = piece_fingerprint(*file, static_cast<std::int64_t>(piece));
      if (!hash) return hash.error();
      pieces[piece] = std::move(*hash);
    }
  }
  const std::string text = report_to_json(report_);
  return write_new(report_of(group_.member), text, static_cast<std::int64_t>(text.size()));
}

/// Merges all reports: sums of elements, all fingerprints.
Result<MemberReport> CheckpointWriter::gather() {
  constexpr std::int64_t kLongest = std::int64_t{64} << 20;
  MemberReport all = report_;
  for (int member = 0; member < group_.members; ++member) {
    const std::string path = report_of(member);
    if (member > 0) {
      const Result<std::string> text = read_file(path, kLongest);
      if (!text) return text.error();
      const Result<MemberReport> report = parse_report(*text, path);
      if (!report) return report.error();
      EXPECTS(report->files.size() == all.files.size(), "members write the same files");
      for (std::size_t i = 0; i < all.files.size(); ++i) add(report->files[i], all.files[i]);
    }
    const Status removed = disk_.remove_all(path);
    if (!removed) return removed.error();
  }
  return all;
}

/// Phase 4, by the leader: the manifest, then the rename, each on the disk before the next.
Status CheckpointWriter::complete() {
  const Result<MemberReport> all = gather();
  if (!all) return all.error();
  CheckpointManifest manifest{contents_, {}};
  for (std::size_t i = 0; i < files_.size(); ++i) {
    const StateFile& file = files_[i];
    for (std::size_t t = 0; t < file.header.tensors.size(); ++t) {
      const TensorEntry& tensor = file.header.tensors[t];
      const std::int64_t written = all->files[i].written[t];
      if (written == tensor.count()) continue;
      return environment_error(inside(file.name),
                               fmt::format("the members wrote {} elements of {}, which has {}",
                                           written, tensor.name, tensor.count()),
                               "this is a defect of the program");
    }
    manifest.files.push_back({file.name, file.bytes(), all->files[i].pieces});
  }
  const std::string text = manifest_to_json(manifest);
  Status done = write_new(inside("manifest.json"), text, static_cast<std::int64_t>(text.size()));
  if (done) done = disk_.sync_directory(aside_);
  if (done) done = disk_.rename(aside_, target_);
  if (done) done = disk_.sync_directory(directory_);
  if (done) done = sweep();  // if a checkpoint of this step existed before
  if (done) done = retire();
  return done;
}

/// Renamed first: an entry with a checkpoint's name is never incomplete.
Status CheckpointWriter::retire() {
  const Result<std::vector<std::int64_t>> steps = checkpoint_steps(directory_);
  if (!steps) return steps.error();
  for (const std::int64_t step : superseded(*steps, contents_.progress.step, keep_)) {
    const std::string path = checkpoint_path(directory_, step);
    const Status renamed = disk_.rename(path, path + ".tmp");
    if (!renamed) return renamed;
    const Status removed = disk_.remove_all(path + ".tmp");
    if (!removed) return removed;
  }
  return Done{};
}

Status write_checkpoint(const std::string& directory, const CheckpointContents& contents,
                        std::span<const StateSpan> spans, const CheckpointGroup& group,
                        const KeepPolicy& keep, const Disk& disk) {
  EXPECTS(keep.last >= 0 && group.member >= 0 && group.member < group.members,
          "a member of the group");
  CheckpointWriter writer(directory, contents, spans, group, keep, disk);
  for (int phase = 0; phase < CheckpointWriter::kPhases; ++phase) {
    const Status all = agreed(group, writer.carry_out(phase));
    if (all) continue;
    writer.abandon();
    return all;
  }
  return Done{};
}

}  // namespace echelon

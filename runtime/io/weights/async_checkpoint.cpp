#include "runtime/io/weights/async_checkpoint.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

namespace echelon {
namespace {

constexpr const char* kNotReady = "?";  // no error's text: those begin with its kind

std::int64_t bytes_of(const StateSpan& span, const StateFormat& format) {
  const std::optional<Element> element = element_of(format, span.kind);
  EXPECTS(element.has_value(), "spans of what the format has");
  return (span.end - span.begin) * bytes_of(*element);
}

}  // namespace

AsyncCheckpoint::AsyncCheckpoint(std::string directory, KeepPolicy keep, const Disk& disk,
                                 int member, int members, std::span<const StateSpan> spans,
                                 const StateFormat& format)
    : directory_(std::move(directory)), keep_(keep), disk_(disk) {
  group_.member = member;
  group_.members = members;
  std::int64_t bytes = 0;
  for (const StateSpan& span : spans) bytes += bytes_of(span, format);
  copy_.resize(static_cast<std::size_t>(bytes));
}

void AsyncCheckpoint::start(const CheckpointContents& contents, std::span<const StateSpan> spans,
                            const decltype(CheckpointGroup::read)& read) {
  EXPECTS(!in_flight(), "one checkpoint at a time");
  contents_ = contents;
  copied_.assign(spans.begin(), spans.end());
  std::size_t at = 0;
  for (StateSpan& span : copied_) {
    const std::int64_t bytes = bytes_of(span, contents.format);
    EXPECTS(at + static_cast<std::size_t>(bytes) <= copy_.size(), "spans of the same sizes");
    if (read)
      read(span.data, copy_.data() + at, bytes);
    else
      std::memcpy(copy_.data() + at, span.data, static_cast<std::size_t>(bytes));
    span.data = copy_.data() + at;
    at += static_cast<std::size_t>(bytes);
  }
  writer_ =
      std::make_unique<CheckpointWriter>(directory_, contents_, copied_, group_, keep_, disk_);
  phase_ = 0;
  launch();
}

void AsyncCheckpoint::launch() {
  const bool idle = CheckpointWriter::of_leader(phase_) && !group_.leads();
  done_.reset();
  running_ = std::async(idle ? std::launch::deferred : std::launch::async,
                        [this] { return writer_->carry_out(phase_); });
}

Status AsyncCheckpoint::advance(const decltype(CheckpointGroup::exchange)& exchange, bool wait) {
  EXPECTS(in_flight(), "a checkpoint is in flight");
  do {
    if (!done_ && wait) running_.wait();
    const auto none = std::chrono::seconds(0);
    if (!done_ && running_.wait_for(none) != std::future_status::timeout) done_ = running_.get();
    const std::vector<std::string> texts = exchange(done_ ? to_text(*done_) : kNotReady);
    if (std::find(texts.begin(), texts.end(), kNotReady) != texts.end()) continue;
    const Status all = first_error(texts);
    if (!all) writer_->abandon();
    if (!all || ++phase_ == CheckpointWriter::kPhases) {
      writer_.reset();
      return all;
    }
    launch();
  } while (wait);
  return Done{};
}

}  // namespace echelon

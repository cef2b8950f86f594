#include "runtime/threads/watchdog.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/threads/clock.hpp"

namespace echelon {
namespace {

using State = RankProgress::State;

/// Time between signs of life; of many ranks a second, since rank 0 reads and answers them all.
Seconds interval_of(int ranks, Seconds timeout) {
  constexpr int kMany = 64;
  constexpr Seconds kOften{0.2};
  constexpr Seconds kSeldom{1};
  constexpr double kPerTimeout = 8;  // at least
  return std::min(ranks > kMany ? kSeldom : kOften, timeout / kPerTimeout);
}

/// A process is silent, and an instruction long, from this share of the timeout on.
constexpr double kPatience = 0.5;
/// Timeouts after which an instruction that nobody waits for ends the run.
constexpr double kLongWork = 2;
/// Of RunThreads::set_activity: the end of a step, which may write a checkpoint.
constexpr std::uint64_t kEndOfStep = (1U << 24) - 1;

template <std::size_t n>
void put(std::string_view from, std::array<char, n>& to) {
  to = {};
  from.copy(to.data(), n - 1);
}

StatusMessage message_of(const RankProgress& progress) {
  StatusMessage message;
  message.kind = StatusMessage::Kind::progress;
  message.rank = progress.rank;
  message.state = static_cast<std::int32_t>(progress.state);
  message.order = progress.order;
  message.seconds = progress.lasting.in(kSecond);
  const std::size_t count = std::min(progress.missing.size(), message.missing.size());
  message.missing_count = static_cast<std::int32_t>(count);
  std::copy_n(progress.missing.begin(), count, message.missing.begin());
  put(progress.at, message.text);
  return message;
}

StatusMessage message_of(const std::optional<Suspect>& suspect) {
  StatusMessage message;
  if (!suspect) return message;
  message.kind = StatusMessage::Kind::suspect;
  message.rank = suspect->rank;
  message.state = static_cast<std::int32_t>(suspect->why);
  message.seconds = suspect->lasting.in(kSecond);
  put(suspect->what, message.text);
  return message;
}

/// Not to be trusted further than its size: the other side may be of another version.
std::string text_of(const StatusMessage& message) {
  return {message.text.begin(), std::find(message.text.begin(), message.text.end(), '\0')};
}

RankProgress progress_of(const StatusMessage& message) {
  RankProgress progress;
  progress.rank = message.rank;
  progress.state = static_cast<State>(std::clamp(message.state, 0, 2));
  progress.order = message.order;
  progress.lasting = Seconds{message.seconds};
  progress.at = text_of(message);
  const auto count = static_cast<std::size_t>(std::clamp(message.missing_count, 0, 8));
  progress.missing.assign(message.missing.begin(), message.missing.begin() + count);
  return progress;
}

Suspect suspect_of(const StatusMessage& message) {
  return {.rank = message.rank,
          .why = static_cast<Suspect::Why>(std::clamp(message.state, 0, 2)),
          .lasting = Seconds{message.seconds},
          .what = text_of(message)};
}

}  // namespace

Watchdog::Watchdog(RunThreads& run_threads, int own, int ranks, StatusLink* link, Seconds timeout)
    : run_threads_(run_threads),
      own_(own),
      ranks_(ranks),
      link_(link),
      timeout_(timeout),
      interval_(interval_of(ranks, timeout)) {
  const Seconds now = steady_now();
  if (link_ != nullptr) {
    for (int rank = 0; rank < ranks_; ++rank) {
      if (rank == own_ || (own_ != 0 && rank != 0)) continue;
      heard_[rank].progress.rank = rank;
      heard_[rank].at = now;
    }
  }
  run_threads_.set_accuser([this] { return verdict(); });
  thread_ = std::jthread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  end_.notify_all();
  thread_.join();
  run_threads_.set_accuser({});
}

void Watchdog::watch() {
  std::unique_lock lock(mutex_);
  const std::chrono::duration<double> interval(interval_.in(kSecond));
  while (!end_.wait_for(lock, interval, [&] { return over_; })) {
    lock.unlock();
    round();
    lock.lock();
  }
}

/// Every process sends its state to rank 0, which sends its own and the suspect to all.
void Watchdog::round() {
  const std::vector<RankProgress> local = run_threads_.progress();
  end_long_work(local);
  if (link_ == nullptr) return;
  receive();
  const auto own = std::find_if(local.begin(), local.end(),
                                [&](const RankProgress& each) { return each.rank == own_; });
  if (own == local.end()) return;
  if (own_ != 0) return link_->send(0, message_of(*own));
  const StatusMessage found = message_of(suspect(3 * interval_));
  for (int rank = 1; rank < ranks_; ++rank) {
    link_->send(rank, message_of(*own));
    link_->send(rank, found);
  }
}

void Watchdog::receive() {
  const std::lock_guard lock(mutex_);
  int from = 0;
  while (const std::optional<StatusMessage> message = link_->receive(from)) {
    const auto sender = heard_.find(from);
    if (sender == heard_.end()) continue;
    sender->second.at = steady_now();
    if (message->kind == StatusMessage::Kind::progress) {
      sender->second.progress = progress_of(*message);
      sender->second.progress.rank = from;
    } else if (message->kind == StatusMessage::Kind::suspect) {
      reported_ = suspect_of(*message);
    } else {
      reported_.reset();
    }
  }
}

std::optional<Suspect> Watchdog::suspect(Seconds patience) {
  std::vector<RankStatus> ranks;
  for (RankProgress& each : run_threads_.progress()) ranks.push_back({std::move(each), {}});
  const std::lock_guard lock(mutex_);
  const Seconds now = steady_now();
  for (const auto& [rank, heard] : heard_) ranks.push_back({heard.progress, now - heard.at});
  return judge(ranks, patience);
}

Seconds Watchdog::timeout() const { return std::max(timeout_, run_threads_.raised_deadline()); }

std::string Watchdog::verdict() {
  if (link_ != nullptr) receive();
  const Seconds patience = kPatience * timeout();
  std::optional<Suspect> found = suspect(patience);
  if (own_ != 0 && link_ != nullptr && (!found || found->why != Suspect::Why::silent)) {
    // Rank 0 hears from all; this process from rank 0 alone.
    const std::lock_guard lock(mutex_);
    const bool counts =
        reported_ && (reported_->why == Suspect::Why::absent || reported_->lasting > patience);
    if (counts) found = reported_;
  }
  return found ? describe(*found) : std::string();
}

void Watchdog::end_long_work(const std::vector<RankProgress>& local) {
  for (const RankProgress& each : local) {
    const bool in_instruction = each.order != 0 && (each.order & kEndOfStep) != kEndOfStep;
    if (each.state != State::works || !in_instruction || each.lasting < kLongWork * timeout())
      continue;
    run_threads_.stop(RunFailure::Kind::hang,
                      describe(Suspect{each.rank, Suspect::Why::works, each.lasting, each.at}));
    return;
  }
}

}  // namespace echelon

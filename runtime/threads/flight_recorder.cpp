#include "runtime/threads/flight_recorder.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

namespace echelon {
namespace {

/// Some hundred kilobytes; an instruction is one entry, a wait that lasts another.
constexpr std::uint64_t kEntries = 1024;
constexpr std::size_t kBytes = sizeof(FlightHeader) + kEntries * sizeof(FlightEntry);

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

template <std::size_t n>
void put_text(std::string_view from, std::array<char, n>& to) {
  to = {};
  from.copy(to.data(), n - 1);
}

/// The number is written last: an entry without one is unfinished.
void put_entry(const FlightEntry& entry, FlightEntry& to) {
  FlightEntry unfinished = entry;
  unfinished.number = 0;
  to = unfinished;
  std::atomic_ref<std::uint64_t>(to.number).store(entry.number, std::memory_order_release);
}

}  // namespace

Result<FlightRecorder> FlightRecorder::open(const std::string& folder, int rank, int ranks) {
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  const std::string path = folder + "/" + flight_file_name(rank);
  ::unlink(path.c_str());
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  const bool sized = file >= 0 && ::ftruncate(file, static_cast<off_t>(kBytes)) == 0;
  void* const memory =
      sized ? ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int why = errno;
  if (file >= 0) ::close(file);
  if (memory == MAP_FAILED) {
    return environment_error("--flight-recorder: " + path, std::strerror(why));
  }
  auto* const header = new (memory) FlightHeader;
  header->rank = rank;
  header->ranks = ranks;
  header->process = ::getpid();
  header->entries = kEntries;
  header->began = seconds_now();
  ::gethostname(header->machine.data(), header->machine.size() - 1);
  auto* const ring =
      new (static_cast<std::byte*>(memory) + sizeof(FlightHeader)) FlightEntry[kEntries];
  return FlightRecorder(header, ring, kBytes);
}

FlightRecorder::FlightRecorder(FlightRecorder&& other) noexcept
    : header_(std::exchange(other.header_, nullptr)), ring_(other.ring_), bytes_(other.bytes_) {}

FlightRecorder::~FlightRecorder() {
  if (header_ != nullptr) ::munmap(header_, bytes_);
}

void FlightRecorder::record(const std::string& queue, std::uint64_t order, const std::string& what,
                            const std::vector<int>& missing) {
  FlightEntry entry;
  entry.time = seconds_now();
  entry.order = order;
  const std::size_t count = std::min(missing.size(), entry.missing.size());
  entry.missing_count = static_cast<std::int32_t>(count);
  std::copy_n(missing.begin(), count, entry.missing.begin());
  put_text(queue, entry.queue);
  put_text(what, entry.what);
  const std::lock_guard lock(mutex_);
  entry.number = ++count_;
  put_entry(entry, ring_[entry.number % kEntries]);
  const auto place = queues_.try_emplace(queue, queues_.size()).first->second;
  if (place < header_->latest.size()) put_entry(entry, header_->latest[place]);
}

void FlightRecorder::end(const RunFailure* failure) {
  const std::lock_guard lock(mutex_);
  if (failure != nullptr) {
    put_text(name_of(failure->kind()), header_->failure);
    put_text(failure->what(), header_->reason);
  }
  header_->ended = seconds_now();
}

Status FlightRecorders::open(RunThreads& run_threads, const std::string& folder,
                             const std::vector<int>& local_ranks, int ranks) {
  if (folder.empty()) return Done{};
  for (const int rank : local_ranks) {
    Result<FlightRecorder> opened = FlightRecorder::open(folder, rank, ranks);
    if (!opened) return opened.error();
    of_rank_.emplace(rank, *std::move(opened));
  }
  run_threads.set_log([this](const RunThreads::LogEntry& entry) {
    of_rank_.at(entry.rank).record(entry.member, entry.order, entry.what, entry.missing);
  });
  return Done{};
}

void FlightRecorders::end(const RunFailure* failure) {
  for (auto& [rank, recorder] : of_rank_) recorder.end(failure);
}

}  // namespace echelon

// Every collective begins with a round in which all members tell each other their calls, with the
// data themselves where they are small. Large data go from member to member in slices, and are
// added up in member order by the same code as between threads, so the bits are the same.
#include "runtime/mpi/mpi_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <vector>

#include "core/expects.hpp"
#include "runtime/clock.hpp"
#include "runtime/ordered_reduction.hpp"

namespace echelon::mpi {
namespace {

/// Bytes of one member's part of a slice: scratch memory is this times the members.
constexpr std::int64_t kSliceBytes = 1 << 18;
/// What one message may hold; MPI counts in int.
constexpr std::int64_t kMessageBytes = 1 << 30;
/// Tags of messages.
constexpr int kParts = 1;
constexpr int kSums = 2;
constexpr int kLetters = 3;
constexpr int kContents = 4;

/// A call, and its data when they fit.
struct Letter {
  Call call;
  alignas(16) std::array<std::byte, 224> data;
  [[nodiscard]] bool holds(std::int64_t bytes) const {
    return bytes <= static_cast<std::int64_t>(data.size());
  }
};
static_assert(std::is_trivially_copyable_v<Letter> && sizeof(Letter) == 256);

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator(Crew& crew, Group group, MPI_Comm comm)
      : crew_(crew),
        group_(std::move(group)),
        comm_(comm),
        where_(describe(group_)),
        letters_(group_.ranks.size()) {
    check(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), where_);
    check(MPI_Comm_rank(comm_, &rank_), where_);
  }
  ~MpiCommunicator() override {
    if (!crew_.stopping()) {
      MPI_Comm_free(&comm_);
    } else {
      // A round under way still uses them.
      new (std::nothrow) std::vector<Letter>(std::move(letters_));
      new (std::nothrow) std::vector<std::byte>(std::move(scratch_));
    }
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return group_.size(); }

  void all_reduce(void* data, std::int64_t count, Element element, Reduction how) override;
  void reduce_scatter(const void* in, void* out, std::int64_t count, Element element) override;
  void all_gather(const void* in, void* out, std::int64_t count, Element element) override;
  void broadcast(void* data, std::int64_t count, Element element, int root) override;
  void send(const void* data, std::int64_t count, Element element, int to) override;
  void receive(void* data, std::int64_t count, Element element, int from) override;
  void barrier() override { meet({}, nullptr, 0); }
  /// A message's sender does not learn when the receiver was there: the end of the call.
  [[nodiscard]] Seconds met() const override { return met_; }

 private:
  void meet(const Call& call, const void* data, std::int64_t bytes);
  [[nodiscard]] std::vector<const void*> parts(const void* own, std::int64_t bytes);
  void start_receive(void* data, std::int64_t bytes, int from, int tag);
  void start_send(const void* data, std::int64_t bytes, int to, int tag);
  void wait_all(const Call& call);
  [[nodiscard]] Letter& letter(int member) { return letters_[static_cast<std::size_t>(member)]; }

  Crew& crew_;
  Group group_;
  MPI_Comm comm_;
  int rank_ = 0;
  Seconds met_;
  std::string where_;
  std::vector<Letter> letters_;  ///< of the last round, by member
  std::vector<std::byte> scratch_;
  std::vector<MPI_Request> under_way_;
};

void MpiCommunicator::start_receive(void* data, std::int64_t bytes, int from, int tag) {
  for (std::int64_t at = 0; at < bytes; at += kMessageBytes) {
    check(MPI_Irecv(static_cast<std::byte*>(data) + at,
                    static_cast<int>(std::min(kMessageBytes, bytes - at)), MPI_BYTE, from, tag,
                    comm_, &under_way_.emplace_back(MPI_REQUEST_NULL)),
          where_);
  }
}

void MpiCommunicator::start_send(const void* data, std::int64_t bytes, int to, int tag) {
  for (std::int64_t at = 0; at < bytes; at += kMessageBytes) {
    check(MPI_Isend(static_cast<const std::byte*>(data) + at,
                    static_cast<int>(std::min(kMessageBytes, bytes - at)), MPI_BYTE, to, tag, comm_,
                    &under_way_.emplace_back(MPI_REQUEST_NULL)),
          where_);
  }
}

/// Asks, never blocks in MPI: the crew may end meanwhile.
void MpiCommunicator::wait_all(const Call& call) {
  const auto ready = [this] {
    int all = 0;
    check(MPI_Testall(static_cast<int>(under_way_.size()), under_way_.data(), &all,
                      MPI_STATUSES_IGNORE),
          where_);
    return all != 0;
  };
  crew_.poll(ready, [&] { return describe(group_, call) + " in the " + where_; });
  under_way_.clear();
}

/// All members tell their calls; afterwards `letters_` holds them, with data that fit.
void MpiCommunicator::meet(const Call& call, const void* data, std::int64_t bytes) {
  Letter& own = letter(rank_);
  own.call = call;
  if (own.holds(bytes) && bytes > 0) {
    std::memcpy(own.data.data(), data, static_cast<std::size_t>(bytes));
  }
  check(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, letters_.data(), sizeof(Letter),
                       MPI_BYTE, comm_, &under_way_.emplace_back(MPI_REQUEST_NULL)),
        where_);
  wait_all(call);
  met_ = steady_now();
  for (int other = 0; other < size(); ++other) {
    const auto wrong = disagreement(group_, rank_, call, other, letter(other).call);
    if (wrong) throw RunFailure(*wrong);
  }
}

/// By member: own data where they lie, the others' in scratch memory.
std::vector<const void*> MpiCommunicator::parts(const void* own, std::int64_t bytes) {
  scratch_.resize(static_cast<std::size_t>(bytes * size()));
  std::vector<const void*> all;
  for (int member = 0; member < size(); ++member) {
    all.push_back(member == rank_ ? own : scratch_.data() + member * bytes);
  }
  return all;
}

void MpiCommunicator::all_reduce(void* data, std::int64_t count, Element element, Reduction how) {
  const Call call{Operation::all_reduce, element, how, 0, count};
  meet(call, data, call.bytes());
  if (letter(rank_).holds(call.bytes())) {
    std::vector<const void*> in;
    for (const Letter& each : letters_) in.push_back(each.data.data());
    return reduce_in_order(in, 0, std::array{data}, 0, count, element, how);
  }
  const std::int64_t width = bytes_of(element);
  const std::int64_t slice = kSliceBytes / width * size();
  for (std::int64_t first = 0; first < count; first += slice) {
    const std::int64_t here = std::min(slice, count - first);
    const auto begin = [&](int member) { return here * member / size(); };
    const auto bytes = [&](int member) { return (begin(member + 1) - begin(member)) * width; };
    auto* const at = static_cast<std::byte*>(data) + first * width;
    const auto part = [&](int member) { return at + begin(member) * width; };
    const auto in = parts(part(rank_), bytes(rank_));
    for (int step = 1; step < size(); ++step) {
      const int from = (rank_ + size() - step) % size();
      const int to = (rank_ + step) % size();
      start_receive(scratch_.data() + from * bytes(rank_), bytes(rank_), from, kParts);
      start_send(part(to), bytes(to), to, kParts);
    }
    wait_all(call);
    reduce_in_order(in, 0, std::array<void*, 1>{part(rank_)}, 0, bytes(rank_) / width, element,
                    how);
    for (int step = 1; step < size(); ++step) {
      const int from = (rank_ + size() - step) % size();
      start_receive(part(from), bytes(from), from, kSums);
      start_send(part(rank_), bytes(rank_), (rank_ + step) % size(), kSums);
    }
    wait_all(call);
  }
}

void MpiCommunicator::reduce_scatter(const void* in, void* out, std::int64_t count,
                                     Element element) {
  const Call call{Operation::reduce_scatter, element, Reduction::sum, 0, count};
  meet(call, nullptr, 0);
  const std::int64_t width = bytes_of(element);
  const std::int64_t slice = kSliceBytes / width;
  for (std::int64_t first = 0; first < count; first += slice) {
    const std::int64_t here = std::min(slice, count - first);
    const auto part = [&](int member) {
      return static_cast<const std::byte*>(in) + (member * count + first) * width;
    };
    const auto all = parts(part(rank_), here * width);
    for (int step = 1; step < size(); ++step) {
      const int from = (rank_ + size() - step) % size();
      const int to = (rank_ + step) % size();
      start_receive(scratch_.data() + from * here * width, here * width, from, kParts);
      start_send(part(to), here * width, to, kParts);
    }
    wait_all(call);
    reduce_in_order(all, 0, std::array{out}, first, here, element, Reduction::sum);
  }
}

void MpiCommunicator::all_gather(const void* in, void* out, std::int64_t count, Element element) {
  const Call call{Operation::all_gather, element, Reduction::sum, 0, count};
  const std::int64_t bytes = call.bytes();
  meet(call, in, bytes);
  const auto part = [&](int member) { return static_cast<std::byte*>(out) + member * bytes; };
  if (part(rank_) != in && bytes > 0) {
    std::memcpy(part(rank_), in, static_cast<std::size_t>(bytes));
  }
  const bool small = letter(rank_).holds(bytes);
  for (int step = 1; step < size() && bytes > 0; ++step) {
    const int from = (rank_ + size() - step) % size();
    if (small) {
      std::memcpy(part(from), letter(from).data.data(), static_cast<std::size_t>(bytes));
    } else {
      start_receive(part(from), bytes, from, kParts);
      start_send(in, bytes, (rank_ + step) % size(), kParts);
    }
  }
  wait_all(call);
}

void MpiCommunicator::broadcast(void* data, std::int64_t count, Element element, int root) {
  EXPECTS(root >= 0 && root < size(), "the root is a member");
  const Call call{Operation::broadcast, element, Reduction::sum, root, count};
  const std::int64_t bytes = call.bytes();
  meet(call, data, rank_ == root ? bytes : 0);
  if (letter(rank_).holds(bytes)) {
    if (rank_ != root && bytes > 0) {
      std::memcpy(data, letter(root).data.data(), static_cast<std::size_t>(bytes));
    }
    return;
  }
  for (int member = 0; member < size(); ++member) {
    if (rank_ == root && member != root) start_send(data, bytes, member, kParts);
  }
  if (rank_ != root) start_receive(data, bytes, root, kParts);
  wait_all(call);
}

void MpiCommunicator::send(const void* data, std::int64_t count, Element element, int to) {
  EXPECTS(to >= 0 && to < size() && to != rank_, "a message goes to another member");
  const Call call{Operation::send, element, Reduction::sum, to, count};
  Letter& own = letter(rank_);
  own.call = call;
  if (!own.holds(call.bytes())) {
    start_send(data, call.bytes(), to, kContents);
  } else if (count > 0) {
    std::memcpy(own.data.data(), data, static_cast<std::size_t>(call.bytes()));
  }
  check(MPI_Issend(&own, sizeof own, MPI_BYTE, to, kLetters, comm_,
                   &under_way_.emplace_back(MPI_REQUEST_NULL)),
        where_);
  wait_all(call);
  met_ = steady_now();
}

void MpiCommunicator::receive(void* data, std::int64_t count, Element element, int from) {
  EXPECTS(from >= 0 && from < size() && from != rank_, "a message comes from another member");
  const Call call{Operation::receive, element, Reduction::sum, from, count};
  Letter& theirs = letter(from);
  start_receive(&theirs, sizeof theirs, from, kLetters);
  wait_all(call);
  met_ = steady_now();
  const auto wrong = disagreement(group_, rank_, call, from, theirs.call);
  if (wrong) throw RunFailure(*wrong);
  if (!theirs.holds(call.bytes())) {
    start_receive(data, call.bytes(), from, kContents);
    wait_all(call);
  } else if (count > 0) {
    std::memcpy(data, theirs.data.data(), static_cast<std::size_t>(call.bytes()));
  }
}

}  // namespace

std::unique_ptr<Communicator> communicator(Crew& crew, const Group& group, MPI_Comm comm) {
  return std::make_unique<MpiCommunicator>(crew, group, comm);
}

}  // namespace echelon::mpi

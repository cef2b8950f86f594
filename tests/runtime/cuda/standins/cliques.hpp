// The state shared by the members of a communicator, in any processes of this machine. It is
// anonymous memory: nothing of it remains, however the processes ended.
#pragma once

#include <nccl.h>
#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace echelon::standins {

enum class Kind : std::uint8_t { all_reduce, reduce_scatter, all_gather, broadcast, send, recv };

/// The properties of a call that the other members must know.
struct Terms {
  Kind kind = Kind::all_reduce;
  std::size_t count = 0;  // as the call has it
  ncclDataType_t type = ncclFloat32;
  ncclRedOp_t reduction = ncclSum;
  int root = 0;  // or the peer
};

inline constexpr int kMaxRanks = 32;
inline constexpr int kMaxSplits = 24;

/// The progress of a member with the calls of one kind: its collectives, its sends to another
/// member, or its receives from there. Calls are counted from 1.
struct Progress {
  int called = 0;
  int arrived = 0;      // is at the head of its stream, and its input can be read
  int finished = 0;     // has received its result
  Terms terms;          // of the call that arrived last
  char where[48] = "";  // the stream of the latest call
};

/// A member, or its place.
struct Seat {
  std::atomic<int> process = 0;  // 0: it has not come
  char bus[16] = "";
  bool aborted = false;
  bool dead = false;                       // by the test
  bool left = false;                       // in order
  std::atomic<std::uint64_t> changes = 0;  // of its machine
};

/// One split of a communicator, by member of that.
struct Split {
  bool called[kMaxRanks] = {};
  int color[kMaxRanks] = {};
  int key[kMaxRanks] = {};
  /// Of the new communicator, by its first member.
  bool made[kMaxRanks] = {};
  ncclUniqueId id[kMaxRanks] = {};
};

class Clique {
 public:
  /// Guarded by the lock, except for atomic members.
  struct Shared {
    pthread_mutex_t mutex;
    std::uint64_t number = 0;
    int size = 0;  // 0: no member has joined
    Seat seats[kMaxRanks];
    Progress collectives[kMaxRanks];
    int reduced = 0;                             // collectives that were reduced
    Progress messages[kMaxRanks][kMaxRanks][2];  // from, to: of the sender, of the receiver
    Split splits[kMaxSplits];
  };
  /// The lock of all processes. It is freed if its holder is killed. Lock order: the machine's lock
  /// first.
  class Lock {
   public:
    explicit Lock(const Clique& clique);
    ~Lock();
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    pthread_mutex_t* mutex_;
  };

  /// A new clique, and its identifier. nullptr: there is no memory.
  static std::unique_ptr<Clique> made(ncclUniqueId& id);
  /// The clique of another process, or of another machine of this one. nullptr: there is none.
  static std::unique_ptr<Clique> found(const ncclUniqueId& id);
  /// Whether the identifier is that of this clique.
  [[nodiscard]] bool is(const ncclUniqueId& id) const;
  ~Clique();
  Clique(const Clique&) = delete;
  Clique& operator=(const Clique&) = delete;

  [[nodiscard]] Shared& operator*() const { return *shared_; }
  [[nodiscard]] Shared* operator->() const { return shared_; }
  /// Pack member is in another process.
  [[nodiscard]] bool is_elsewhere() const;

  /// The place of numbers in transit.
  static std::int64_t of_collectives(int rank) { return rank; }
  static std::int64_t of_sums() { return kMaxRanks; }
  static std::int64_t of_messages(int from, int to) {
    return kMaxRanks + 1 + std::int64_t{from} * kMaxRanks + to;
  }
  /// To a new or cleared place.
  void write(std::int64_t place, std::size_t offset, const void* data, std::size_t bytes) const;
  void read(std::int64_t place, std::size_t offset, void* data, std::size_t bytes) const;
  /// Frees its memory.
  void clear(std::int64_t place) const;

 private:
  Clique(int file, Shared* shared) : file_(file), shared_(shared) {}

  int file_;
  Shared* shared_;
};

}  // namespace echelon::standins

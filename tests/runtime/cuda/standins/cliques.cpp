#include "tests/runtime/cuda/standins/cliques.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

namespace echelon::standins {
namespace {

/// The content of an ncclUniqueId: the place of the memory, and its identity.
struct Identifier {
  int process;
  int file;
  std::uint64_t number;
};

Identifier content_of(const ncclUniqueId& id) {
  Identifier identifier{};
  std::memcpy(&identifier, id.internal, sizeof identifier);
  return identifier;
}

/// Size of the file: unwritten parts take no memory.
constexpr std::int64_t kPlace = std::int64_t{1} << 33;
static_assert(sizeof(Clique::Shared) < kPlace);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

Clique::Shared* mapped(int file) {
  void* const memory =
      mmap(nullptr, sizeof(Clique::Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Clique::Shared*>(memory);
}

std::int64_t offset_of(std::int64_t place) { return (place + 1) * kPlace; }
constexpr std::int64_t kPlaces = kMaxRanks + 1 + kMaxRanks * kMaxRanks;

bool all_zero(const unsigned char* data, std::size_t bytes) {
  return *data == 0 && std::memcmp(data, data + 1, bytes - 1) == 0;
}

/// All of it, piece by piece.
template <class Call, class Byte>
void move_all(const Call& call, int file, Byte* data, std::size_t bytes, std::int64_t offset) {
  while (bytes > 0) {
    const ssize_t moved = call(file, data, bytes, offset);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) throw std::runtime_error("shared memory of a communicator: no more of it");
    data += moved;
    bytes -= static_cast<std::size_t>(moved);
    offset += moved;
  }
}

}  // namespace

Clique::Lock::Lock(const Clique& clique) : mutex_(&clique->mutex) {
  if (pthread_mutex_lock(mutex_) == EOWNERDEAD) pthread_mutex_consistent(mutex_);
}
Clique::Lock::~Lock() { pthread_mutex_unlock(mutex_); }

std::unique_ptr<Clique> Clique::made(ncclUniqueId& id) {
  const int file = memfd_create("nccl stand-in", MFD_CLOEXEC);
  if (file < 0) return nullptr;
  Shared* const memory =
      ftruncate(file, offset_of(kPlaces)) == 0 ? mapped(file) : static_cast<Shared*>(nullptr);
  if (memory == nullptr) {
    close(file);
    return nullptr;
  }
  auto* const shared = new (memory) Shared;
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&shared->mutex, &attributes);
  pthread_mutexattr_destroy(&attributes);
  static std::atomic<std::uint32_t> made_here = 0;
  const pid_t process = getpid();
  shared->number = (static_cast<std::uint64_t>(process) << 32U) + ++made_here;
  const Identifier identifier{process, file, shared->number};
  id = {};
  std::memcpy(id.internal, &identifier, sizeof identifier);
  return std::unique_ptr<Clique>(new Clique(file, shared));
}

std::unique_ptr<Clique> Clique::found(const ncclUniqueId& id) {
  const Identifier identifier = content_of(id);
  if (identifier.process <= 0 || identifier.file < 0) return nullptr;
  const std::string path =
      "/proc/" + std::to_string(identifier.process) + "/fd/" + std::to_string(identifier.file);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  Shared* const shared = lseek(file, 0, SEEK_END) == offset_of(kPlaces) ? mapped(file) : nullptr;
  if (shared == nullptr || shared->number != identifier.number) {
    if (shared != nullptr) munmap(shared, sizeof(Shared));
    close(file);
    return nullptr;
  }
  return std::unique_ptr<Clique>(new Clique(file, shared));
}

bool Clique::is(const ncclUniqueId& id) const { return shared_->number == content_of(id).number; }

Clique::~Clique() {
  munmap(shared_, sizeof(Shared));
  close(file_);
}

bool Clique::is_elsewhere() const {
  for (const Seat& seat : shared_->seats) {
    if (seat.process != 0 && seat.process != getpid()) return true;
  }
  return false;
}

/// Cleared parts are zero without taking memory; warm-ups write many zeros.
void Clique::write(std::int64_t place, std::size_t offset, const void* data,
                   std::size_t bytes) const {
  constexpr std::size_t kPiece = std::size_t{1} << 16U;
  const auto* const from = static_cast<const unsigned char*>(data);
  const std::int64_t to = offset_of(place) + static_cast<std::int64_t>(offset);
  for (std::size_t at = 0; at < bytes; at += kPiece) {
    const std::size_t piece = std::min(kPiece, bytes - at);
    if (all_zero(from + at, piece)) continue;
    move_all(pwrite, file_, from + at, piece, to + static_cast<std::int64_t>(at));
  }
}

void Clique::read(std::int64_t place, std::size_t offset, void* data, std::size_t bytes) const {
  move_all(pread, file_, static_cast<unsigned char*>(data), bytes,
           offset_of(place) + static_cast<std::int64_t>(offset));
}

void Clique::clear(std::int64_t place) const {
  static_cast<void>(
      fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_of(place), kPlace));
}

}  // namespace echelon::standins

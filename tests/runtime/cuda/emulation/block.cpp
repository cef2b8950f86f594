#include "tests/runtime/cuda/emulation/block.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tests/runtime/cuda/emulation/fiber.hpp"
#include "tests/runtime/cuda/emulation/shared_memory.hpp"
#include "tests/support/numbers.hpp"

namespace echelon::emulation {
namespace {

// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", column 8.0.
constexpr std::size_t kSharedUnasked = 48 * 1024;
constexpr std::size_t kMaxShared = 163 * 1024;
constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxGrid = 65535;  // in y and z

struct Copy {
  std::size_t offset;
  const void* from;
  std::size_t valid;
};

enum class State { ready, at_barrier, in_warp, done };

struct Thread {
  Thread(char* stack, void (*body)()) : fiber(stack, body) {}
  Fiber fiber;
  State state = State::ready;
  Place where;
  int parity = 0;  // of the warp's slots it uses next
  std::deque<Copy> copies;
  std::deque<std::size_t> groups;  // copies in each
  std::size_t uncommitted = 0;
};

struct Warp {
  int waiting = 0;
  Place where;
  Slot slots[2][32];
  std::uint32_t epoch = 0;
};

std::string said(const Place& place) {
  return std::string(place.file) + ":" + std::to_string(place.line);
}

/// One block at a time.
class Block {
 public:
  void run(unsigned threads, std::size_t bytes, const std::function<void()>& body, Numbers& draws);

  void sync(const Place& where);
  const Slot* gather(const Slot& mine, void (*finish)(Slot*), const Place& where,
                     bool orders_memory);
  [[noreturn]] void fail(const std::string& what) const;

  [[nodiscard]] Toucher toucher() const {
    return {static_cast<std::uint16_t>(current_), warps_[current_ / 32].epoch};
  }
  Thread& thread() { return *threads_[current_]; }
  [[nodiscard]] unsigned current_thread() const { return current_; }
  SharedMemory memory;
  std::string kernel;

 private:
  static void enter();
  void resume(unsigned thread);
  void release_all();
  [[nodiscard]] std::string stuck() const;

  const std::function<void()>* body_ = nullptr;
  std::vector<std::unique_ptr<Thread>> threads_;
  std::vector<std::unique_ptr<char[]>> stacks_;
  std::vector<Warp> warps_;
  std::vector<unsigned> ready_;
  unsigned current_ = 0;
  unsigned count_ = 0;
  unsigned at_barrier_ = 0;
  unsigned done_ = 0;
  std::optional<std::string> fault_;
};

Block& block() {
  static Block one;
  return one;
}

void Block::fail(const std::string& what) const {
  const auto triple = [](unsigned x, unsigned y, unsigned z) {
    return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
  };
  throw Fault(kernel + ", block " + triple(blockIdx.x, blockIdx.y, blockIdx.z) + ", thread " +
              triple(threadIdx.x, threadIdx.y, threadIdx.z) + ": " + what);
}

/// No exception leaves a fiber: the scheduler throws the fault stored in fault_.
void Block::enter() {
  Block& b = block();
  try {
    (*b.body_)();
    if (!b.thread().copies.empty()) b.fail("leaves with asynchronous copies it did not wait for");
    if (b.at_barrier_ > 0) b.fail("leaves while others wait at a barrier");
  } catch (const Fault& fault) {
    b.fault_ = fault.what();
  }
  b.thread().state = State::done;
  ++b.done_;
}

void Block::resume(unsigned thread) {
  current_ = thread;
  threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y,
               thread / blockDim.x / blockDim.y};
  threads_[thread]->fiber.resume();
}

void Block::run(unsigned threads, std::size_t bytes, const std::function<void()>& body,
                Numbers& draws) {
  body_ = &body;
  count_ = threads;
  at_barrier_ = done_ = 0;
  fault_.reset();
  memory.begin_block(bytes);
  warps_.assign((threads + 31) / 32, {});
  threads_.clear();
  ready_.clear();
  while (stacks_.size() < threads) stacks_.emplace_back(new char[kStackBytes]);
  for (unsigned t = 0; t < threads; ++t) {
    threads_.push_back(std::make_unique<Thread>(stacks_[t].get(), &Block::enter));
    ready_.push_back(t);
  }
  while (done_ < count_ && !fault_) {
    if (ready_.empty()) {
      fault_ = kernel + ": " + stuck();
      break;
    }
    const std::size_t drawn = draws.below(ready_.size());
    const unsigned thread = ready_[drawn];
    ready_[drawn] = ready_.back();
    ready_.pop_back();
    resume(thread);
  }
  if (fault_) throw Fault(*fault_);
}

void Block::release_all() {
  for (unsigned t = 0; t < count_; ++t) {
    if (t != current_) ready_.push_back(t);
    threads_[t]->state = State::ready;
  }
  at_barrier_ = 0;
  memory.pass_barrier();
}

void Block::sync(const Place& where) {
  if (done_ > 0) fail("waits at " + said(where) + ", and others have left the kernel");
  Thread& me = thread();
  me.where = where;
  me.state = State::at_barrier;
  if (++at_barrier_ == count_) {
    for (unsigned t = 0; t < count_; ++t) {
      if (threads_[t]->where != where) {
        fail("waits at " + said(where) + ", and thread " + std::to_string(t) + " at " +
             said(threads_[t]->where));
      }
    }
    release_all();
    return;
  }
  me.fiber.yield();
}

const Slot* Block::gather(const Slot& mine, void (*finish)(Slot*), const Place& where,
                          bool orders_memory) {
  Thread& me = thread();
  const unsigned first = current_ / 32 * 32;
  Warp& warp = warps_[current_ / 32];
  if (warp.waiting > 0 && warp.where != where) {
    fail("is at " + said(where) + ", and other lanes of its warp at " + said(warp.where));
  }
  Slot* slots = warp.slots[me.parity];
  me.parity ^= 1;
  slots[current_ - first] = mine;
  warp.where = me.where = where;
  me.state = State::in_warp;
  if (++warp.waiting == 32) {
    warp.waiting = 0;
    if (finish != nullptr) finish(slots);
    if (orders_memory) ++warp.epoch;
    for (unsigned t = first; t < first + 32; ++t) {
      if (t != current_) ready_.push_back(t);
      threads_[t]->state = State::ready;
    }
  } else {
    me.fiber.yield();
  }
  return slots;
}

/// The place where the first thread waits, and a thread that waits elsewhere or left.
std::string Block::stuck() const {
  const auto says = [&](unsigned t) {
    return "thread " + std::to_string(t) +
           (threads_[t]->state == State::done ? " has left"
                                              : " waits at " + said(threads_[t]->where));
  };
  for (unsigned t = 1; t < count_; ++t) {
    if (threads_[t]->state != threads_[0]->state || threads_[t]->where != threads_[0]->where) {
      return says(0) + ", " + says(t);
    }
  }
  return says(0) + " like all others";
}

/// Properties of a kernel.
struct Kernel {
  std::string name;
  int shared_bytes = 0;  // asked for
};
std::mutex kernels_mutex;
Kernel& known(const void* kernel) {
  static std::map<const void*, Kernel> all;
  return all[kernel];
}
Kernel copy_of_known(const void* kernel) {
  const std::lock_guard lock(kernels_mutex);
  return known(kernel);
}

/// True if this synchronisation is to be skipped.
bool dropped(const Place& where) {
  places().insert(where);
  return settings().dropped == where;
}

void need_full_warp(unsigned mask) {
  if (mask != 0xffffffffU) block().fail("part of a warp is not emulated");
}

}  // namespace

Settings& settings() {
  static Settings one;
  return one;
}

std::set<Place>& places() {
  static std::set<Place> all;
  return all;
}

void name_kernel(const void* kernel, std::string_view signature) {
  constexpr std::string_view kBefore = "kernel = ";
  const std::size_t begin = signature.find(kBefore) + kBefore.size();
  const std::lock_guard lock(kernels_mutex);
  known(kernel).name = signature.substr(begin, signature.find("; ", begin) - begin);
}

std::string name_of_kernel(const void* kernel) { return copy_of_known(kernel).name; }

void allow_shared(const void* kernel, int bytes) {
  if (static_cast<std::size_t>(bytes) > kMaxShared) {
    throw Fault("more shared memory asked for than there is: " + std::to_string(bytes));
  }
  const std::lock_guard lock(kernels_mutex);
  known(kernel).shared_bytes = bytes;
}

void check_launch(const void* kernel, dim3 grid, dim3 threads, std::size_t shared_bytes) {
  const Kernel facts = copy_of_known(kernel);
  const unsigned count = threads.x * threads.y * threads.z;
  const auto largest = std::max(kSharedUnasked, static_cast<std::size_t>(facts.shared_bytes));
  if (count == 0 || count > kMaxThreads || count % 32 != 0 || grid.x == 0 || grid.y == 0 ||
      grid.z == 0 || grid.x > 0x7fffffffU || grid.y > kMaxGrid || grid.z > kMaxGrid ||
      shared_bytes > largest) {
    throw Fault(facts.name + ": no device takes this launch, or its last warp is not whole");
  }
}

void run_grid(const void* kernel, dim3 grid, dim3 threads, std::size_t shared_bytes,
              const std::function<void()>& run) {
  check_launch(kernel, grid, threads, shared_bytes);
  Block& b = block();
  b.kernel = name_of_kernel(kernel);
  const unsigned count = threads.x * threads.y * threads.z;
  Numbers draws(settings().seed);
  blockDim = threads;
  gridDim = grid;
  std::vector<std::uint64_t> order(std::uint64_t{grid.x} * grid.y * grid.z);
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[draws.below(i)]);
  for (const std::uint64_t index : order) {
    blockIdx = {static_cast<unsigned>(index % grid.x),
                static_cast<unsigned>(index / grid.x % grid.y),
                static_cast<unsigned>(index / grid.x / grid.y)};
    b.run(count, shared_bytes, run, draws);
  }
}

void sync_threads(const Place& where) {
  if (!dropped(where)) block().sync(where);
}

void sync_warp(const Place& where) {
  if (!dropped(where)) block().gather({}, nullptr, where, true);
}

int lane() { return static_cast<int>(block().current_thread() % 32); }

const Slot* gather_warp(unsigned mask, const Slot& mine, void (*finish)(Slot*),
                        const Place& where) {
  need_full_warp(mask);
  return block().gather(mine, finish, where, false);
}

void read_shared(std::size_t offset, void* to, std::size_t bytes) {
  Block& b = block();
  const auto fault = b.memory.read(offset, to, bytes, b.toucher());
  if (fault) b.fail(*fault);
}

void write_shared(std::size_t offset, const void* from, std::size_t bytes) {
  Block& b = block();
  const auto fault = b.memory.write(offset, from, bytes, b.toucher());
  if (fault) b.fail(*fault);
}

std::size_t shared_bytes() { return block().memory.size(); }

void copy_async(std::size_t offset, const void* from, int valid) {
  Block& b = block();
  if (offset % 16 != 0 || valid < 0 || valid > 16)
    b.fail("an asynchronous copy that is not aligned");
  if (valid > 0) check_aligned(from, 16);
  if (const auto fault = b.memory.begin_copy(offset, 16, b.toucher())) b.fail(*fault);
  b.thread().copies.push_back({offset, from, static_cast<std::size_t>(valid)});
  ++b.thread().uncommitted;
}

void commit_copies() {
  Thread& thread = block().thread();
  thread.groups.push_back(thread.uncommitted);
  thread.uncommitted = 0;
}

void wait_copies(int left, const Place& where) {
  Block& b = block();
  if (dropped(where)) return;
  Thread& thread = b.thread();
  while (thread.groups.size() > static_cast<std::size_t>(left)) {
    for (std::size_t i = 0; i < thread.groups.front(); ++i) {
      const Copy copy = thread.copies.front();
      thread.copies.pop_front();
      unsigned char bytes[16] = {};
      if (copy.valid > 0) std::memcpy(bytes, copy.from, copy.valid);
      if (const auto fault = b.memory.land(copy.offset, bytes, 16, b.toucher())) b.fail(*fault);
    }
    thread.groups.pop_front();
  }
}

void check_aligned(const void* address, std::size_t bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0) {
    block().fail("an access of " + std::to_string(bytes) + " bytes is not aligned");
  }
}

}  // namespace echelon::emulation

// The execution model of a GPU on one thread of the host at a time: a grid's blocks one after the
// other, the threads of a block as fibers. A fiber runs until it waits; the next one is drawn from
// a seed.
//
// Checked, and thrown as Fault with kernel, block and thread:
// * Two threads use the same bytes of shared memory, one of them writing, and neither
//   __syncthreads() nor (within a warp) __syncwarp() lies between. Shuffles order no memory.
// * Shared memory is read before it is written, or outside the size that the launch requested.
// * The threads of a block wait at different barriers, or one left; the same of a warp's lanes.
// * A vector access is not aligned; a launch exceeds what compute capability 8.0 allows.
// * An asynchronous copy is read before its wait, or has none. Its data arrives at the wait, not
// before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>

struct uint3 {
  unsigned x = 0, y = 0, z = 0;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline uint3 threadIdx;
inline uint3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace echelon::emulation {

struct Fault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Where a thread waits.
struct Place {
  std::string_view file;
  unsigned line = 0;
  auto operator<=>(const Place&) const = default;
};
/// For tests: the order of blocks and fibers, and a synchronisation to skip.
struct Settings {
  std::uint64_t seed = 1;
  Place dropped;
};
Settings& settings();
/// Every barrier and wait that was executed since this was cleared.
std::set<Place>& places();

// ---- Called by cuda_runtime.h and by the kernels' intrinsics

/// `signature`: of a function with a template parameter `kernel`, as the compiler writes it.
void name_kernel(const void* kernel, std::string_view signature);
[[nodiscard]] std::string name_of_kernel(const void* kernel);
void allow_shared(const void* kernel, int bytes);
/// Throws when no device takes the launch.
void check_launch(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes);
/// One grid at a time; the functions above may be called by several host threads.
void run_grid(const void* kernel, dim3 grid, dim3 block, std::size_t shared_bytes,
              const std::function<void()>& run);

void sync_threads(const Place& where);
void sync_warp(const Place& where);

/// A lane's input to an operation of its warp, and its result.
inline constexpr std::size_t kSlotBytes = 32;
struct Slot {
  alignas(8) unsigned char bytes[kSlotBytes];
};
int lane();
/// Waits for all lanes; the last one to arrive calls `finish` on the 32 slots, which stay valid
/// until the lane's next but one operation.
const Slot* gather_warp(unsigned mask, const Slot& mine, void (*finish)(Slot*), const Place& where);

/// Shared memory, by the offset from its beginning.
void read_shared(std::size_t offset, void* to, std::size_t bytes);
void write_shared(std::size_t offset, const void* from, std::size_t bytes);
std::size_t shared_bytes();

/// cp.async of 16 bytes, of which the first `valid` are read and the others become zero.
void copy_async(std::size_t offset, const void* from, int valid);
void commit_copies();
/// All groups except the last `left` have arrived.
void wait_copies(int left, const Place& where);

/// mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32: d = a·b + d, fragments as in the PTX ISA,
/// "Matrix Fragments for mma.m16n8k16".
void multiply_tile(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                   const Place& where);
/// ldmatrix.sync.aligned.m8n8.x4(.trans).shared.b16; `offset`: of the row this lane points to.
void load_matrices(std::uint32_t (&to)[4], std::size_t offset, bool transposed, const Place& where);

void check_aligned(const void* address, std::size_t bytes);

}  // namespace echelon::emulation

// Tiles of bf16 numbers in shared memory, and the operations a warp does on them together. Compiled
// by nvcc these are instructions of compute capability 8.0; compiled for the host, the emulation's
// definitions of them (PTX ISA: "Matrix Fragments for mma.m16n8k16", "ldmatrix", "cp.async").
#pragma once

#include "runtime/cuda/kernels/common.cuh"

namespace echelon::cuda {

/// 16 × 8 sums of a warp: lane l has row l/4 (at 0, 1) and row l/4 + 8 (at 2, 3), columns
/// 2·(l mod 4) and the next.
struct Accumulator {
  float at[4] = {};
};

/// sums += a · b. a: 16 × 16, b: 16 × 8, both as load_matrices gives them.
__device__ __forceinline__ void mma(Accumulator& sums, const std::uint32_t (&a)[4],
                                    std::uint32_t b0, std::uint32_t b1) {
#ifdef __CUDACC__
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(sums.at[0]), "+f"(sums.at[1]), "+f"(sums.at[2]), "+f"(sums.at[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  emulation::multiply_tile(sums.at, a, b0, b1,
                           emulation::Place{__builtin_FILE(), __builtin_LINE()});
#endif
}

/// Two numbers as bf16 in a register, `low` in its lower half.
__device__ __forceinline__ std::uint32_t packed(float low, float high) {
  const __nv_bfloat16 both[2] = {__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
  std::uint32_t bits = 0;
  std::memcpy(&bits, both, sizeof bits);
  return bits;
}

/// This thread's copies since the last call become a group.
__device__ __forceinline__ void commit_copies() {
#ifdef __CUDACC__
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  emulation::commit_copies();
#endif
}

/// All groups of this thread except the last `left` have arrived. Copies of other threads are
/// visible to this one after a barrier behind their waits.
template <int left>
__device__ __forceinline__ void wait_copies(
#ifndef __CUDACC__
    emulation::Place where = {__builtin_FILE(), __builtin_LINE()}
#endif
) {
#ifdef __CUDACC__
  asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory");
#else
  emulation::wait_copies(left, where);
#endif
}

/// rows × width bf16 numbers. A row's groups of eight are swizzled by the row, so that eight rows'
/// groups of the same columns are in different banks.
template <int rows, int width>
class Tile {
 public:
  static constexpr int kCount = rows * width;
  static constexpr int kGroup = 8;
  static_assert(width % 64 == 0);

  __device__ explicit Tile(const Shared<__nv_bfloat16>& memory) : memory_(memory) {}

  /// Copies 16 bytes from global memory to a group, complete at a wait; zeros if there is no row.
  __device__ void copy_in(int row, int group, const __nv_bfloat16* from, bool there) const {
#ifdef __CUDACC__
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(memory_.address(place(row, group))),
        "l"(from), "r"(there ? 16 : 0)
        : "memory");
#else
    emulation::copy_async(memory_.address(place(row, group)), from, there ? 16 : 0);
#endif
  }

  /// The same for unaligned rows, synchronously.
  __device__ void move_in(int row, int group, const __nv_bfloat16* from, bool there) const {
    for (int i = 0; i < kGroup; ++i) {
      memory_.write(place(row, group) + i, there ? from[i] : __float2bfloat16_rn(0));
    }
  }

  /// The 16 × 16 numbers from (row, column) on as the left operand of mma.
  __device__ void load_a(std::uint32_t (&to)[4], int row, int column) const {
    const int lane = lane_index();
    load_matrices<false>(to, row + lane % 16, column / kGroup + lane / 16);
  }

  /// The 16 rows from `row` on, 16 columns from `column` on, as two right operands, to[0], to[1]
  /// and to[2], to[3]: of products over the columns, 8 rows each.
  __device__ void load_b(std::uint32_t (&to)[4], int row, int column) const {
    const int lane = lane_index();
    load_matrices<false>(to, row + lane % 8 + lane / 16 * 8, column / kGroup + lane / 8 % 2);
  }

  /// The same numbers for products over the rows, 8 columns each.
  __device__ void load_b_transposed(std::uint32_t (&to)[4], int row, int column) const {
    const int lane = lane_index();
    load_matrices<true>(to, row + lane % 16, column / kGroup + lane / 16);
  }

 private:
  __device__ static int place(int row, int group) {
    return row * width + (group ^ (row % 8)) * kGroup;
  }

  /// Four matrices of 8 × 8; lane l gives the address of row l mod 8 of matrix l/8.
  template <bool transposed>
  __device__ void load_matrices(std::uint32_t (&to)[4], int row, int group) const {
#ifdef __CUDACC__
    const unsigned at = memory_.address(place(row, group));
    if constexpr (transposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(at)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : "r"(at)
                   : "memory");
    }
#else
    emulation::load_matrices(to, memory_.address(place(row, group)), transposed,
                             emulation::Place{__builtin_FILE(), __builtin_LINE()});
#endif
  }

  Shared<__nv_bfloat16> memory_;
};

}  // namespace echelon::cuda

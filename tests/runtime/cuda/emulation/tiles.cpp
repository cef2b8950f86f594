// The operations on tiles that a warp does together.
#include <cstring>

#include "runtime/comm/element.hpp"
#include "tests/runtime/cuda/emulation/block.hpp"

namespace echelon::emulation {
namespace {

/// Of a register's two halves.
float half_of(std::uint32_t pair, int which) {
  Bfloat16 value;
  value.bits = static_cast<std::uint16_t>(which == 0 ? pair & 0xffffU : pair >> 16U);
  return static_cast<float>(value);
}

/// The sums of 16 products of each of the 16 × 8 places. A tensor core adds in an order that is not
/// documented; here in double, rounded once.
void multiply_slots(Slot* slots) {
  float a[16][16];
  float b[16][8];
  for (int l = 0; l < 32; ++l) {
    std::uint32_t in[6];
    std::memcpy(in, slots[l].bytes, sizeof in);
    const int group = l / 4;
    const int within = l % 4;
    for (int half = 0; half < 2; ++half) {
      const int low = 2 * within + half;
      a[group][low] = half_of(in[0], half);
      a[group + 8][low] = half_of(in[1], half);
      a[group][low + 8] = half_of(in[2], half);
      a[group + 8][low + 8] = half_of(in[3], half);
      b[low][group] = half_of(in[4], half);
      b[low + 8][group] = half_of(in[5], half);
    }
  }
  double d[16][8] = {};
  for (int row = 0; row < 16; ++row) {
    for (int k = 0; k < 16; ++k) {
      for (int column = 0; column < 8; ++column) {
        d[row][column] += double{a[row][k]} * double{b[k][column]};
      }
    }
  }
  for (int l = 0; l < 32; ++l) {
    double out[4];
    for (int i = 0; i < 4; ++i) out[i] = d[l / 4 + (i < 2 ? 0 : 8)][2 * (l % 4) + i % 2];
    std::memcpy(slots[l].bytes, out, sizeof out);
  }
}

}  // namespace

void multiply_tile(float (&d)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                   const Place& where) {
  Slot mine{};
  const std::uint32_t in[6] = {a[0], a[1], a[2], a[3], b0, b1};
  std::memcpy(mine.bytes, in, sizeof in);
  const Slot* slots = gather_warp(0xffffffffU, mine, &multiply_slots, where);
  double out[4];
  std::memcpy(out, slots[lane()].bytes, sizeof out);
  for (int i = 0; i < 4; ++i) d[i] = static_cast<float>(double{d[i]} + out[i]);
}

void load_matrices(std::uint32_t (&to)[4], std::size_t offset, bool transposed,
                   const Place& where) {
  Slot mine{};
  std::memcpy(mine.bytes, &offset, sizeof offset);
  const Slot* slots = gather_warp(0xffffffffU, mine, nullptr, where);
  const int me = lane();
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t halves[2];
    for (int half = 0; half < 2; ++half) {
      const int row = transposed ? 2 * (me % 4) + half : me / 4;
      const int column = transposed ? me / 4 : 2 * (me % 4) + half;
      std::size_t at = 0;
      std::memcpy(&at, slots[8 * matrix + row].bytes, sizeof at);
      read_shared(at + 2 * static_cast<std::size_t>(column), &halves[half], 2);
    }
    to[matrix] = halves[0] | std::uint32_t{halves[1]} << 16U;
  }
}

}  // namespace echelon::emulation

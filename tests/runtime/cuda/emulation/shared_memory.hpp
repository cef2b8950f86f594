// Shared memory of a block that records the last uses of each pair of bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace echelon::emulation {

/// A thread of the block, and how many __syncwarp() its warp has passed.
struct Toucher {
  std::uint16_t thread = 0;
  std::uint32_t warp_epoch = 0;
};

/// Every call returns its fault, if any.
class SharedMemory {
 public:
  using Wrong = std::optional<std::string>;

  /// Makes all content undefined and every byte poison: as numbers, NaN.
  void begin_block(std::size_t bytes);
  void pass_barrier() { ++epoch_; }
  [[nodiscard]] std::size_t size() const { return size_; }

  Wrong read(std::size_t offset, void* to, std::size_t bytes, Toucher by);
  Wrong write(std::size_t offset, const void* from, std::size_t bytes, Toucher by);
  /// Between the two calls the bytes belong to `by`, and no thread may read them.
  Wrong begin_copy(std::size_t offset, std::size_t bytes, Toucher by);
  Wrong land(std::size_t offset, const void* from, std::size_t bytes, Toucher by);

 private:
  enum class Readers : std::uint8_t { one, of_a_warp, of_warps };
  struct Cell {
    std::uint64_t write_epoch = 0;  // of the block; 0: never
    std::uint64_t read_epoch = 0;
    Toucher writer;
    Toucher reader;  // the first of its epochs
    Readers readers = Readers::one;
    bool in_flight = false;
  };
  Wrong check_range(std::size_t offset, std::size_t bytes) const;
  [[nodiscard]] bool unordered(Toucher one, Toucher other) const;
  Wrong note_write(std::size_t offset, std::size_t bytes, Toucher by, bool in_flight);
  Wrong note_read(Cell& cell, Toucher by);

  std::vector<unsigned char> bytes_;
  std::vector<Cell> cells_;
  std::size_t size_ = 0;
  std::uint64_t epoch_ = 0;        // grows at every barrier and every block
  std::uint64_t block_epoch_ = 0;  // the first of this block
};

}  // namespace echelon::emulation

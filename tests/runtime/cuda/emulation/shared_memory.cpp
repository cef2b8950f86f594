#include "tests/runtime/cuda/emulation/shared_memory.hpp"

#include <algorithm>
#include <cstring>

namespace echelon::emulation {
namespace {

constexpr std::size_t kCellBytes = 2;
constexpr unsigned char kPoison = 0xff;

std::string between(Toucher one, const char* what) {
  return std::string(what) + " thread " + std::to_string(one.thread) + " without a barrier between";
}

}  // namespace

void SharedMemory::begin_block(std::size_t bytes) {
  size_ = bytes;
  block_epoch_ = ++epoch_;
  bytes_.assign(bytes, kPoison);
  if (cells_.size() < (bytes + 1) / kCellBytes) cells_.resize((bytes + 1) / kCellBytes);
  // Epochs distinguish the data of earlier blocks, but not their copies in flight.
  for (std::size_t i = 0; i < (bytes + 1) / kCellBytes; ++i) cells_[i].in_flight = false;
}

SharedMemory::Wrong SharedMemory::check_range(std::size_t offset, std::size_t bytes) const {
  if (offset + bytes <= size_) return std::nullopt;
  return "uses bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) + " of " +
         std::to_string(size_) + " of shared memory";
}

/// Of two uses since the same barrier.
bool SharedMemory::unordered(Toucher one, Toucher other) const {
  if (one.thread == other.thread) return false;
  return one.thread / 32 != other.thread / 32 || one.warp_epoch == other.warp_epoch;
}

SharedMemory::Wrong SharedMemory::note_read(Cell& cell, Toucher by) {
  if (cell.in_flight) return "reads shared memory that an asynchronous copy has not reached";
  if (cell.write_epoch < block_epoch_) return "reads shared memory that nobody has written";
  if (cell.write_epoch == epoch_ && unordered(cell.writer, by)) {
    return between(cell.writer, "reads shared memory written by");
  }
  if (cell.read_epoch != epoch_) {
    cell.read_epoch = epoch_;
    cell.reader = by;
    cell.readers = Readers::one;
  } else if (cell.reader.thread / 32 != by.thread / 32) {
    cell.readers = Readers::of_warps;
  } else if (cell.readers != Readers::of_warps) {
    if (cell.reader.warp_epoch != by.warp_epoch) {
      cell.reader = by;
      cell.readers = Readers::one;
    } else if (cell.reader.thread != by.thread) {
      cell.readers = Readers::of_a_warp;
    }
  }
  return std::nullopt;
}

SharedMemory::Wrong SharedMemory::note_write(std::size_t offset, std::size_t bytes, Toucher by,
                                             bool in_flight) {
  if (auto wrong = check_range(offset, bytes)) return wrong;
  for (std::size_t i = offset / kCellBytes; i < (offset + bytes + 1) / kCellBytes; ++i) {
    Cell& cell = cells_[i];
    if (cell.write_epoch == epoch_ && unordered(cell.writer, by)) {
      return between(cell.writer, "writes shared memory written by");
    }
    const bool one_of_several =
        cell.readers == Readers::of_warps ||
        (cell.readers == Readers::of_a_warp && cell.reader.warp_epoch == by.warp_epoch);
    if (cell.read_epoch == epoch_ && (one_of_several || unordered(cell.reader, by))) {
      return between(cell.reader, "writes shared memory read by");
    }
    cell.write_epoch = epoch_;
    cell.writer = by;
    cell.in_flight = in_flight;
  }
  return std::nullopt;
}

SharedMemory::Wrong SharedMemory::read(std::size_t offset, void* to, std::size_t bytes,
                                       Toucher by) {
  if (auto wrong = check_range(offset, bytes)) return wrong;
  for (std::size_t i = offset / kCellBytes; i < (offset + bytes + 1) / kCellBytes; ++i) {
    if (auto wrong = note_read(cells_[i], by)) return wrong;
  }
  std::memcpy(to, bytes_.data() + offset, bytes);
  return std::nullopt;
}

SharedMemory::Wrong SharedMemory::write(std::size_t offset, const void* from, std::size_t bytes,
                                        Toucher by) {
  if (auto wrong = note_write(offset, bytes, by, false)) return wrong;
  std::memcpy(bytes_.data() + offset, from, bytes);
  return std::nullopt;
}

SharedMemory::Wrong SharedMemory::begin_copy(std::size_t offset, std::size_t bytes, Toucher by) {
  if (auto wrong = note_write(offset, bytes, by, true)) return wrong;
  std::fill_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), bytes, kPoison);
  return std::nullopt;
}

SharedMemory::Wrong SharedMemory::land(std::size_t offset, const void* from, std::size_t bytes,
                                       Toucher by) {
  return write(offset, from, bytes, by);
}

}  // namespace echelon::emulation

// The numbers of collectives.
#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/comm/element.hpp"
#include "tests/runtime/cuda/standins/allocations.hpp"
#include "tests/runtime/cuda/standins/communicators.hpp"

namespace echelon::standins {
namespace {

std::size_t ranks_of(const Request& request) {
  return static_cast<std::size_t>(request.comm->size);
}

template <class Wide>
Wide reduced(ncclRedOp_t reduction, Wide one, Wide other) {
  if constexpr (std::is_integral_v<Wide>) {
    if (reduction == ncclMax) return std::max(one, other);
    return static_cast<Wide>(static_cast<std::uint32_t>(one) + static_cast<std::uint32_t>(other));
  } else {
    return reduction == ncclMax ? std::fmax(one, other) : one + other;
  }
}

template <class T, class Wide>
void add_up(const Request& request) {
  constexpr std::size_t kAtOnce = std::size_t{1} << 18U;
  const Clique& clique = *request.comm->clique;
  const std::size_t count = bytes_read(request) / sizeof(T);
  std::vector<T> numbers(std::min(count, kAtOnce));
  std::vector<Wide> sums(numbers.size());
  for (std::size_t first = 0; first < count; first += kAtOnce) {
    const std::size_t here = std::min(kAtOnce, count - first);
    const auto offset = first * sizeof(T);
    for (int rank = 0; rank < request.comm->size; ++rank) {
      clique.read(Clique::of_collectives(rank), offset, numbers.data(), here * sizeof(T));
      for (std::size_t i = 0; i < here; ++i) {
        const auto number = static_cast<Wide>(numbers[i]);
        sums[i] = rank == 0 ? number : reduced(request.reduction, sums[i], number);
      }
    }
    for (std::size_t i = 0; i < here; ++i) numbers[i] = static_cast<T>(sums[i]);
    clique.write(Clique::of_sums(), offset, numbers.data(), here * sizeof(T));
  }
}

}  // namespace

std::size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclFloat32: return 4;
    case ncclFloat64: return 8;
    case ncclBfloat16: return 2;
    case ncclInt32: return 4;
  }
  return 0;
}

std::size_t bytes_read(const Request& request) {
  if (request.kind == Kind::recv) return 0;
  if (request.kind == Kind::broadcast && request.root != request.comm->rank) return 0;
  const std::size_t parts = request.kind == Kind::reduce_scatter ? ranks_of(request) : 1;
  return request.count * bytes_of(request.type) * parts;
}

std::size_t bytes_written(const Request& request) {
  if (request.kind == Kind::send) return 0;
  const std::size_t parts = request.kind == Kind::all_gather ? ranks_of(request) : 1;
  return request.count * bytes_of(request.type) * parts;
}

void check_request(const Request& request) {
  const std::size_t read = bytes_read(request);
  const std::size_t written = bytes_written(request);
  const int device = request.comm->device;
  if (read > 0) check_operand(said(request), request.from, read, device);
  if (written > 0) check_operand(said(request), request.to, written, device);
  const auto* const from = static_cast<const unsigned char*>(request.from);
  const auto* const to = static_cast<const unsigned char*>(request.to);
  if (read == 0 || written == 0 || !overlap(from, read, to, written)) return;
  // In place: a rank's part is at its place within the whole.
  const std::size_t own = static_cast<std::size_t>(request.comm->rank) * std::min(read, written);
  const auto* const place = read < written ? to + own : read > written ? from + own : from;
  if (place != (read < written ? from : to)) {
    machine().complain(said(request) + ": what is read and written overlaps");
  }
}

void give(const Request& request) {
  check_request(request);
  const int rank = request.comm->rank;
  const std::int64_t place = request.kind == Kind::send ? Clique::of_messages(rank, request.root)
                                                        : Clique::of_collectives(rank);
  request.comm->clique->write(place, 0, request.from, bytes_read(request));
}

void add_up(const Request& request) {
  if (request.kind != Kind::all_reduce && request.kind != Kind::reduce_scatter) return;
  switch (request.type) {
    case ncclFloat32: return add_up<float, float>(request);
    case ncclFloat64: return add_up<double, double>(request);
    case ncclBfloat16: return add_up<Bfloat16, float>(request);
    case ncclInt32: return add_up<std::int32_t, std::int32_t>(request);
  }
}

void accept(const Request& request) {
  check_request(request);
  const Clique& clique = *request.comm->clique;
  const int rank = request.comm->rank;
  const std::size_t bytes = request.count * bytes_of(request.type);
  auto* const to = static_cast<unsigned char*>(request.to);
  switch (request.kind) {
    case Kind::all_reduce: return clique.read(Clique::of_sums(), 0, to, bytes);
    case Kind::reduce_scatter:
      return clique.read(Clique::of_sums(), static_cast<std::size_t>(rank) * bytes, to, bytes);
    case Kind::all_gather:
      for (std::size_t each = 0; each < ranks_of(request); ++each) {
        clique.read(Clique::of_collectives(static_cast<int>(each)), 0, to + each * bytes, bytes);
      }
      return;
    case Kind::broadcast: return clique.read(Clique::of_collectives(request.root), 0, to, bytes);
    case Kind::recv: return clique.read(Clique::of_messages(request.root, rank), 0, to, bytes);
    case Kind::send: return;
  }
}

}  // namespace echelon::standins

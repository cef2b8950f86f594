// The numbers of collectives.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "runtime/element.hpp"
#include "tests/runtime/cuda/standins/allocations.hpp"
#include "tests/runtime/cuda/standins/communicators.hpp"

namespace echelon::standins {
namespace {

std::size_t ranks_of(const Request& request) {
  return static_cast<std::size_t>(request.comm->clique->size);
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

/// Of all numbers the members give, as bytes of T.
template <class T, class Wide>
std::vector<unsigned char> reduce(const Meeting& meeting) {
  const Request& first = meeting.members.front().request;
  const std::size_t count = bytes_read(first) / sizeof(T);
  std::vector<unsigned char> all(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) {
    Wide sum = static_cast<Wide>(static_cast<const T*>(first.from)[i]);
    for (std::size_t rank = 1; rank < meeting.members.size(); ++rank) {
      const auto* const from = static_cast<const T*>(meeting.members[rank].request.from);
      sum = reduced(first.reduction, sum, static_cast<Wide>(from[i]));
    }
    const T rounded = static_cast<T>(sum);
    std::memcpy(all.data() + i * sizeof(T), &rounded, sizeof rounded);
  }
  return all;
}

std::vector<unsigned char> reduce_any(const Meeting& meeting) {
  switch (meeting.members.front().request.type) {
    case ncclFloat32: return reduce<float, float>(meeting);
    case ncclFloat64: return reduce<double, double>(meeting);
    case ncclBfloat16: return reduce<Bfloat16, float>(meeting);
    case ncclInt32: return reduce<std::int32_t, std::int32_t>(meeting);
  }
  return {};
}

void append(std::vector<unsigned char>& to, const Request& request) {
  const auto* const from = static_cast<const unsigned char*>(request.from);
  to.insert(to.end(), from, from + bytes_read(request));
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
  if (read == 0 || written == 0 || from >= to + written || to >= from + read) return;
  // In place: a rank's part lies where it belongs within the whole.
  const std::size_t own = static_cast<std::size_t>(request.comm->rank) * std::min(read, written);
  const auto* const place = read < written ? to + own : read > written ? from + own : from;
  if (place != (read < written ? from : to)) {
    machine().complain(said(request) + ": what is read and written overlaps");
  }
}

void carry_out(const Meeting& meeting) {
  for (const Meeting::Member& member : meeting.members) check_request(member.request);
  const Request& first = meeting.members.front().request;
  std::vector<unsigned char> all;
  switch (first.kind) {
    case Kind::all_reduce:
    case Kind::reduce_scatter: all = reduce_any(meeting); break;
    case Kind::all_gather:
      for (const Meeting::Member& member : meeting.members) append(all, member.request);
      break;
    case Kind::broadcast:
      append(all, meeting.members[static_cast<std::size_t>(first.root)].request);
      break;
    case Kind::send:
    case Kind::recv: append(all, first); break;
  }
  for (const Meeting::Member& member : meeting.members) {
    const Request& request = member.request;
    const std::size_t bytes = bytes_written(request);
    const std::size_t offset = request.kind == Kind::reduce_scatter
                                   ? static_cast<std::size_t>(request.comm->rank) * bytes
                                   : 0;
    if (bytes > 0) std::memcpy(request.to, all.data() + offset, bytes);
  }
}

}  // namespace echelon::standins

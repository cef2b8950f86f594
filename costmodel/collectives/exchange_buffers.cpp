#include "costmodel/collectives/exchange_buffers.hpp"

#include <algorithm>

namespace echelon {

namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

Bytes deepep_buffers(const ExchangeCapacity& c) {
  constexpr std::int64_t kLine = 32;             // of the copies, kNumTMAAlignBytes
  constexpr std::int64_t kChannels = 8 * 160;    // kNumMaxChannels
  constexpr std::int64_t kUnit = 2 * (1 << 20);  // of the allocation, kNumAlignmentBytes
  const std::int64_t n = c.tokens;
  const std::int64_t domains = c.domains;
  const std::int64_t in_domain = c.ranks / c.domains;
  const std::int64_t k = c.per_token;
  const std::int64_t row = rounded_up(2 * std::int64_t{c.hidden}, kLine);
  const std::int64_t sent = row + rounded_up(12 * k + 4, kLine);
  const std::int64_t returned = row + rounded_up(8 * k, kLine);
  std::int64_t dispatch = c.ranks * n;
  std::int64_t combine = std::min<std::int64_t>(c.ranks, k) * n;
  if (domains > 1) {
    const std::int64_t channels = domains * (n + kChannels);
    dispatch += n + channels;
    combine = domains * std::min(in_domain, k) * n + std::min(domains, k) * n + channels;
  }
  return Bytes{
      static_cast<double>(rounded_up(std::max(dispatch * sent, combine * returned), kUnit))};
}

Bytes hybridep_buffers(const ExchangeCapacity& c) {
  constexpr std::int64_t kLeast = 512;
  constexpr std::int64_t kChunk = 64;
  const double n = static_cast<double>(rounded_up(std::max(c.tokens, kLeast), kChunk));
  const double row = 2.0 * c.hidden;
  const double scales = c.hidden / 32.0;  // a 4-byte scale per 128 values, without fp8 too
  const double received = row + 4.0 * c.experts / c.domains;
  double all = c.ranks * n * (received + scales);
  if (c.domains > 1) {
    all += n * (row + 4.0 * c.experts + scales) + (c.domains - 1) * n * (3 * received + scales);
  }
  return Bytes{all};
}

}  // namespace

Bytes exchange_buffers(Dispatcher dispatcher, const ExchangeCapacity& capacity) {
  switch (dispatcher) {
    case Dispatcher::deepep: return deepep_buffers(capacity);
    case Dispatcher::hybridep: return hybridep_buffers(capacity);
    case Dispatcher::alltoall:
    case Dispatcher::allgather: break;
  }
  return {};
}

}  // namespace echelon

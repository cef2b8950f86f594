#include "planner/search/chunk_positions.hpp"

#include <algorithm>

namespace echelon {

ChunkPositions::ChunkPositions(const CostModel& cost_model, const ParallelPlan& plan)
    : cost_model_(cost_model),
      pp_(plan.pp),
      vpp_(plan.vpp),
      interleaves_kinds_(plan.vpp > 1 && !cost_model.one_kind()),
      all_layers_(cost_model.model().layers) {
  if (interleaves_kinds_) find_period();
}

/// The shortest lead and period that give every layer its kind.
void ChunkPositions::find_period() {
  const auto kind = [&](int layer) {
    return cost_model_.moe_before(layer + 1) - cost_model_.moe_before(layer);
  };
  lead_ = all_layers_;
  for (int period = 1; period < lead_ + period_; ++period) {
    int lead = std::max(0, all_layers_ - period);
    while (lead > 0 && kind(lead - 1) == kind(lead - 1 + period)) --lead;
    if (lead + period >= lead_ + period_) continue;
    lead_ = lead;
    period_ = period;
  }
}

/// Only the last rank's chunks are of other sizes.
ChunkPositions::Step& ChunkPositions::step(int position, int rank, int count) {
  auto& known = steps_[rank + 1 == pp_ ? 1 : 0];
  if (known.size() <= index(position)) known.resize(keys_.size());
  std::vector<Step>& of_position = known[index(position)];
  if (of_position.empty()) of_position.resize(index(all_layers_) + 1);
  return of_position[index(count)];
}

int ChunkPositions::position(const Key& key, int moe) {
  const auto [at, is_new] = known_.try_emplace(key, static_cast<int>(keys_.size()));
  if (is_new) {
    keys_.push_back(key);
    moe_.push_back(moe);
  }
  return at->second;
}

/// A rank's chunks from some chunk on are larger by one layer, so the ranks whose chunk c is
/// larger grow in number with c; the loss takes a layer's place. `smaller` is the layers of chunk 0
/// of all ranks, `layers` those before `chunk`, `larger` the ranks with a larger chunk before it.
void ChunkPositions::add_starts(int chunk, int larger, int layers, int smaller, Key& key,
                                std::vector<int>& out) {
  const int chunks = vpp_;
  const int left = all_layers_ + 1 - layers;
  if (left < (chunks - chunk) * (smaller + larger)) return;
  if (left > (chunks - chunk) * (smaller + pp_)) return;
  key[index(1 + chunk)] = key[index(chunks + chunk)] = phase_of(layers);
  if (chunk == chunks - 1) return out.push_back(position(key, 0));
  if (period_ == 1 && layers >= lead_) {  // so do all later chunks
    for (int later = chunk + 1; later < chunks; ++later) {
      key[index(1 + later)] = key[index(chunks + later)] = lead_;
    }
    return out.push_back(position(key, 0));
  }
  for (int more = larger; more <= pp_; ++more) {
    add_starts(chunk + 1, more, layers + smaller + more, smaller, key, out);
  }
}

const std::vector<int>& ChunkPositions::starts() {
  std::vector<int>& out = starts_;
  if (!out.empty()) return out;
  if (!interleaves_kinds_) return out = {0};
  Key key(index(2 * vpp_), 0);  // chunk 0 of the first rank begins where the model does
  for (int smaller = 0; smaller * vpp_ <= all_layers_ + 1; ++smaller) {
    // Chunk 0 of no rank is larger.
    if (all_layers_ + 1 > smaller * vpp_ + (vpp_ - 1) * pp_) continue;
    add_starts(1, 0, smaller, smaller, key, out);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

int ChunkPositions::after(int position_before, int rank, int count) {
  if (!interleaves_kinds_) return position_before + count;
  if (const auto known = step(position_before, rank, count).after) return *known;
  Key& key = key_;
  key = keys_[index(position_before)];
  int moe = moe_[index(position_before)];
  key.front() += count;
  for (int chunk = 0; chunk < vpp_; ++chunk) {
    int& phase = key[index(1 + chunk)];
    const int end = std::min(all_layers_, phase + chunk_size(rank, count, chunk));
    moe += cost_model_.moe_before(end) - cost_model_.moe_before(phase);
    phase = phase_of(end);
  }
  const int after = position(key, moe);
  step(position_before, rank, count).after = after;
  return after;
}

bool ChunkPositions::complete(int position) const {
  if (layers(position) != all_layers_) return false;
  if (!interleaves_kinds_) return true;
  const Key& key = keys_[index(position)];
  for (int chunk = 1; chunk < vpp_; ++chunk) {
    if (key[index(chunk)] != key[index(vpp_ + chunk)]) return false;
  }
  return true;
}

std::vector<int> ChunkPositions::begins(int position) const {
  if (!interleaves_kinds_) return {position};
  const auto first = keys_[index(position)].begin() + 1;
  return {first, first + vpp_};
}

LayerCounts ChunkPositions::first_layers(int position, int rank, int count, int first) {
  if (!interleaves_kinds_) {
    const int moe = cost_model_.moe_before(std::min(all_layers_, position + first)) -
                    cost_model_.moe_before(position);
    return {first - moe, moe};
  }
  std::optional<int> unknown;
  std::optional<int>& all = first == count ? step(position, rank, count).moe : unknown;
  if (all) return {first - *all, *all};
  int moe = 0;
  int left = first;
  for (int chunk = 0; chunk < vpp_ && left > 0; ++chunk) {
    const int begin = keys_[index(position)][index(1 + chunk)];
    const int size = chunk_size(rank, count, chunk);
    const int end = std::min(all_layers_, begin + std::min(left, size));
    moe += cost_model_.moe_before(end) - cost_model_.moe_before(begin);
    left -= size;
  }
  all = moe;
  return {first - moe, moe};
}

std::span<const int> ChunkPositions::moe_before(int position, int rank, int count) {
  if (!interleaves_kinds_) {
    return cost_model_.moe_before().subspan(index(position), index(count) + 1);
  }
  moe_before_.assign(1, 0);
  for (int chunk = 0; chunk < vpp_; ++chunk) {
    const int begin = keys_[index(position)][index(1 + chunk)];
    const int size = chunk_size(rank, count, chunk);
    for (int layer = begin; layer < begin + size; ++layer) {
      const int last = std::min(layer, all_layers_ - 1);
      moe_before_.push_back(moe_before_.back() + cost_model_.moe_before(last + 1) -
                            cost_model_.moe_before(last));
    }
  }
  return moe_before_;
}

ChunkPositions::Range ChunkPositions::moe_range(int position_before, int rank, int count) {
  if (!interleaves_kinds_) {
    const int moe =
        cost_model_.moe_before(position_before + count) - cost_model_.moe_before(position_before);
    return {moe, moe};
  }
  const Range anywhere = moe_range(rank, count);
  const int moe = cost_model_.moe_before(all_layers_) - moe_[index(position_before)];
  const int dense = all_layers_ - layers(position_before) - moe;
  return {std::max(anywhere.least, count - dense), std::min(anywhere.most, moe)};
}

ChunkPositions::Range ChunkPositions::moe_range(int rank, int count) {
  if (windows_.empty()) {
    for (int held = 0; held <= all_layers_; ++held) {
      Range range{held, 0};
      const int begins = std::min(lead_ + period_, all_layers_ - held + 1);
      for (int begin = 0; begin < begins; ++begin) {
        const int moe = cost_model_.moe_before(begin + held) - cost_model_.moe_before(begin);
        range = {std::min(range.least, moe), std::max(range.most, moe)};
      }
      windows_.push_back(range);
    }
  }
  // Only the last rank's chunks are of other sizes.
  std::vector<std::optional<Range>>& known = ranges_[rank + 1 == pp_ ? 1 : 0];
  known.resize(index(all_layers_) + 1);
  std::optional<Range>& range = known[index(count)];
  if (range) return *range;
  Range all;
  for (int chunk = 0; chunk < vpp_; ++chunk) {
    const Range& part = windows_[index(chunk_size(rank, count, chunk))];
    all = {all.least + part.least, all.most + part.most};
  }
  const int experts = cost_model_.moe_before(all_layers_);
  range = {std::max(all.least, count - (all_layers_ - experts)), std::min(all.most, experts)};
  return *range;
}

}  // namespace echelon

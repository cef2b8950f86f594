#include "evaluation/cv_folds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>
#include <string_view>
#include <utility>

#include "core/base/expects.hpp"

namespace echelon {

namespace {

std::string cell_text(const WholeCell& cell) { return cell ? fmt::format("{}", *cell) : "?"; }

template <class... Cells>
std::string joined_cells(const Cells&... cells) {
  std::string text;
  ((text += cell_text(cells) + "|"), ...);
  return text;
}

/// The trained model by its shapes, or by its name if the table gives no shapes.
std::string shapes_of(const MeasuredRun& row) {
  if (!row.layers || !row.hidden) return row.model;
  return joined_cells(row.layers, row.hidden, row.ffn_hidden, row.heads, row.experts,
                      row.experts_per_token);
}

std::string cell_of(const MeasuredRun& row) {
  const std::string model = row.model.empty() ? shapes_of(row) : row.model;
  return fmt::format("{} | {} | {} | {} GPUs", row.framework, model, row.gpu, cell_text(row.gpus));
}

std::string twin_key(const MeasuredRun& row) {
  return shapes_of(row) + "|" + row.gpu + "|" +
         joined_cells(row.gpus, row.tp, row.cp, row.ep, row.pp, row.vpp, row.microbatch,
                      row.global_batch, row.seq);
}

/// Disjoint sets over 0 .. n-1; the smallest member stands for its set.
class DisjointSets {
 public:
  explicit DisjointSets(std::size_t size) : parent_(size) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  std::size_t find(std::size_t i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(std::size_t a, std::size_t b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<std::size_t> parent_;
};

}  // namespace

std::vector<std::string> folds_of(std::span<const MeasuredRun> rows) {
  // Cells are numbered in alphabetical order, so that the smallest of a set names it.
  std::map<std::string, std::size_t> cells;
  for (const MeasuredRun& row : rows) cells.emplace(cell_of(row), 0);
  std::vector<std::string> names;
  for (auto& [name, number] : cells) {
    number = names.size();
    names.push_back(name);
  }
  DisjointSets sets(names.size());
  std::map<std::string, std::size_t> twins;
  for (const MeasuredRun& row : rows) {
    const std::size_t cell = cells.at(cell_of(row));
    const auto [twin, first] = twins.emplace(twin_key(row), cell);
    if (!first) sets.join(cell, twin->second);
  }
  std::vector<std::string> folds;
  folds.reserve(rows.size());
  for (const MeasuredRun& row : rows) folds.push_back(names[sets.find(cells.at(cell_of(row)))]);
  return folds;
}

std::vector<int> deal_folds(std::span<const std::string> folds, int parts) {
  EXPECTS(parts >= 1, "at least one part");
  std::map<std::string_view, std::size_t> sizes;
  for (const std::string& fold : folds) ++sizes[fold];
  std::vector<std::pair<std::string_view, std::size_t>> order(sizes.begin(), sizes.end());
  std::ranges::stable_sort(order, std::ranges::greater{},
                           [](const auto& one) { return one.second; });
  std::vector<std::size_t> filled(static_cast<std::size_t>(parts), 0);
  std::map<std::string_view, int> part_of;
  for (const auto& [fold, size] : order) {
    const auto least = std::ranges::min_element(filled);
    *least += size;
    part_of[fold] = static_cast<int>(least - filled.begin());
  }
  std::vector<int> dealt;
  dealt.reserve(folds.size());
  for (const std::string& fold : folds) dealt.push_back(part_of.at(fold));
  return dealt;
}

std::vector<std::string> groups_of(std::span<const MeasuredRun> rows, LeaveOut by) {
  const auto group_of = [by](const MeasuredRun& row) {
    switch (by) {
      case LeaveOut::publisher: return row.publisher.empty() ? row.source : row.publisher;
      case LeaveOut::gpu: return row.gpu;
      case LeaveOut::framework: return row.framework;
      case LeaveOut::source: break;
    }
    return row.source;
  };
  std::vector<std::string> groups;
  for (const MeasuredRun& row : rows) groups.push_back(group_of(row));
  return groups;
}

std::vector<int> parts_of(std::span<const std::string> groups) {
  std::map<std::string_view, int> parts;
  for (const std::string& group : groups) parts.emplace(group, 0);
  int number = 0;
  for (auto& [group, part] : parts) part = number++;
  std::vector<int> out;
  for (const std::string& group : groups) out.push_back(parts.at(group));
  return out;
}

}  // namespace echelon

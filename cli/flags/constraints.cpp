#include "cli/flags/constraints.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "cli/flags/values.hpp"
#include "core/base/parse_quantity.hpp"
#include "core/base/text.hpp"
#include "planner/space/constraints_of_plan.hpp"

namespace echelon::cli {

namespace {

/// Fills optional fields from settings; remembers the first error.
class Filler {
 public:
  explicit Filler(const Settings& settings) : settings_(settings) {}

  void degree(const char* flag, std::optional<int>& out, int least = 1) {
    read(flag, out, [&](const Setting& s) { return parse_int(s.value, s.where, least); });
  }
  void list(const char* flag, std::optional<std::vector<int>>& out, int least) {
    read(flag, out, [&](const Setting& s) { return parse_list(s, least); });
  }
  template <class T, class Parser>
  void read(const char* flag, std::optional<T>& out, Parser parse) {
    const Setting* setting = settings_.find(flag);
    if (setting == nullptr || error_) return;
    const Result<T> value = parse(*setting);
    if (value)
      out = *value;
    else
      error_ = at(*setting, value.error());
  }
  void fail(Error error) {
    if (!error_) error_ = std::move(error);
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  const Settings& settings_;
  std::optional<Error> error_;
};

/// "dp,tp,pp" or "none".
Status read_overlap(const Settings& settings, PlanConstraints& pinned) {
  const Setting* setting = settings.find("overlap");
  if (setting == nullptr) return Done{};
  pinned.overlap_dp = pinned.overlap_tp = pinned.overlap_pp = false;
  if (setting->value == "none") return Done{};
  std::string_view rest = setting->value;
  while (true) {
    const std::string_view axis = rest.substr(0, rest.find(','));
    if (axis == "dp")
      pinned.overlap_dp = true;
    else if (axis == "tp")
      pinned.overlap_tp = true;
    else if (axis == "pp")
      pinned.overlap_pp = true;
    else {
      return input_error(setting->where, in_quotes(axis), "a list of dp, tp and pp, or none");
    }
    if (axis.size() == rest.size()) return Done{};
    rest.remove_prefix(axis.size() + 1);
  }
}

/// "optimizer=0.5": share of the optimizer states kept in host memory.
Result<double> parse_offload(const Setting& setting) {
  constexpr std::string_view kWhat = "optimizer=";
  if (!std::string_view(setting.value).starts_with(kWhat)) {
    return input_error(setting.where, in_quotes(setting.value),
                       "optimizer=SHARE with a share from 0 to 1",
                       "activations and weights stay on the GPU in this version");
  }
  return parse_ratio(std::string_view(setting.value).substr(kWhat.size()), setting.where, 0, 1);
}

/// Whole bytes: a plan file holds them as such.
Result<Bytes> parse_bucket(const Setting& setting) {
  constexpr Bytes kMost{1e15};
  const Result<Bytes> size = parse_bytes(setting.value, setting.where);
  if (!size || (*size >= kByte && *size <= kMost)) {
    return size ? Result(Bytes{std::floor(size->in(kByte))}) : size;
  }
  return input_error(setting.where, in_quotes(setting.value),
                     "a size from 1 byte to 1 PB, for example 25MB");
}

}  // namespace

Result<PlanConstraints> constraints_of(const Settings& settings) {
  PlanConstraints pinned;
  Filler fill(settings);
  fill.degree("tp", pinned.tp);
  fill.degree("cp", pinned.cp);
  fill.degree("ep", pinned.ep);
  fill.degree("etp", pinned.etp);
  fill.degree("dp", pinned.dp);
  fill.degree("pp", pinned.pp);
  fill.degree("vpp", pinned.vpp);
  fill.degree("microbatch", pinned.microbatch);
  fill.degree("zero", pinned.zero, 0);
  fill.degree("zero-group-size", pinned.shard_group);
  fill.read("sequence-parallel", pinned.sequence_parallel, parse_switch);
  fill.list("layers-per-stage", pinned.layers_per_stage, 0);
  fill.list("recompute-layers", pinned.recompute_layers, 0);
  fill.list("selective-layers", pinned.selective_layers, 0);
  fill.read("cp-comm", pinned.cp_comm,
            [](const Setting& s) { return parse_cp_comm(s.value, s.where); });
  fill.read("rank-order", pinned.rank_order,
            [](const Setting& s) { return parse_rank_order(s.value, s.where); });
  fill.read("offload", pinned.offload_optimizer, parse_offload);
  fill.read("recompute", pinned.recompute,
            [](const Setting& s) { return parse_recompute(s.value, s.where); });
  fill.read("schedule", pinned.schedule,
            [](const Setting& s) { return parse_schedule(s.value, s.where); });
  fill.read("bucket", pinned.bucket, parse_bucket);
  if (fill.error()) return *fill.error();
  if (pinned.zero && *pinned.zero > 3) {
    return input_error(settings.find("zero")->where, fmt::format("ZeRO stage {}", *pinned.zero),
                       "0, 1, 2 or 3");
  }
  if (const Status overlap = read_overlap(settings, pinned); !overlap) return overlap.error();
  return pinned;
}

PlanConstraints without_layers(PlanConstraints pinned) {
  pinned.layers_per_stage.reset();
  pinned.recompute_layers.reset();
  pinned.selective_layers.reset();
  return pinned;
}

PlanConstraints changed_by(PlanConstraints pinned, const PlanConstraints& changes) {
  // What follows from a changed degree is worked out again.
  if (changes.tp || changes.cp || changes.pp) pinned.dp.reset();
  if (changes.tp || changes.cp || changes.pp || changes.dp) pinned.shard_group.reset();
  if (changes.tp) pinned.sequence_parallel.reset();
  if (changes.pp) pinned.layers_per_stage.reset();
  if (changes.pp || changes.layers_per_stage || changes.recompute) {
    pinned.recompute_layers.reset();
    pinned.selective_layers.reset();
  }
  if (changes.pp || changes.vpp) pinned.schedule.reset();
  if (changes.pp) pinned.vpp.reset();
  // Without data parallelism, and from ZeRO-2 on, gradients have no buckets.
  if (changes.zero.value_or(0) >= 2 || changes.dp.value_or(2) == 1) pinned.bucket.reset();
  return overlaid(std::move(pinned), changes);
}

}  // namespace echelon::cli

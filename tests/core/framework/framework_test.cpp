#include "core/framework/framework.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "core/plan/job.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

/// The contradictions in a framework's table; "" if there are none.
std::string contradiction(const Framework& f) {
  if (f.name.empty() || f.source.empty()) return "no name or no source";
  if (!find_precision(f.default_precision).ok()) return "an unknown default precision";
  if (f.sequence_parallel_always && !f.sequence_parallel) return "sequence parallelism";
  if (f.sequence_parallel && !f.tensor_parallel) return "sequence without tensor parallelism";
  if ((f.interleaved || f.zero_bubble || f.rank_orders) && !f.pipeline_parallel) {
    return "a schedule or a rank order of no pipeline";
  }
  if (f.mixed_recompute && !f.per_stage_recompute) return "mixed recomputation of equal stages";
  if (f.hybrid_shard[0]) return "optimizer instances without a distributed optimizer";
  for (int zero = 0; zero < 4; ++zero) {
    if (f.hybrid_shard[zero] && !f.zero_allowed[zero]) return "instances of a ZeRO stage it lacks";
  }
  if (f.zero23_with_pipeline && !f.zero_allowed[2] && !f.zero_allowed[3]) return "ZeRO-2 and 3";
  if (f.reduces_in_ddp && !f.overlaps_dp) return "DDP that overlaps nothing";
  if (f.slices_per_context_rank < 1 || f.vocab_padding < 1 || f.default_vocab < 0) return "a count";
  if (f.logits_bytes <= 0 || f.loss_traffic <= 0 || f.gather_buffers < 1) return "bytes of nothing";
  const bool held = f.pending_after > 0 || f.pending_at_most > 0;
  if (held && f.pending_collective_buffers <= 0) return "bounds of collectives that nothing holds";
  if (std::ranges::count(f.defaults, std::string_view(f.name), &FrameworkDefaults::software) != 1) {
    return "no defaults of its own";
  }
  return {};
}

std::string contradiction(const Framework& f, const FrameworkDefaults& d) {
  if (d.why.empty()) return "no reason";
  if (d.software.empty() != (d.evident != Evident::nothing)) return "neither named nor evident";
  if (d.evident != Evident::nothing && d.same_code) return "an unknown software of known code";
  if (d.software == f.name && !d.same_code) return "stands for itself as something else";
  if (!d.precision.empty() && !find_precision(d.precision).ok()) return "an unknown precision";
  if (d.zero < 0 || d.zero > 3 || d.dropout < 0 || d.dropout >= 1) return "a number out of range";
  if (!std::ranges::is_sorted(d.revisions, {}, &Revision::first_job)) return "unsorted revisions";
  if (!d.revisions.empty() && d.revisions.front().first_job != 0) return "jobs before the first";
  if (!d.revisions.empty() && f.pending_collective_buffers <= 0) return "revisions of nothing";
  if (!d.tie_stays.empty() && d.split != StageSplit::by_cost) return "ties of no split by cost";
  return {};
}

TEST_CASE("every framework's table agrees with itself") {
  std::set<std::string> names;
  for (const Framework& framework : frameworks()) {
    INFO(framework.name);
    CHECK(contradiction(framework) == "");
    CHECK(names.insert(framework.name).second);
    CHECK(find_framework(framework.name)->source == framework.source);
    for (const FrameworkDefaults& defaults : framework.defaults) {
      INFO(defaults.software);
      CHECK(contradiction(framework, defaults) == "");
    }
  }
}

TEST_CASE("a table that contradicts itself is found") {
  Framework odd = frameworks().front();
  odd.sequence_parallel = false;
  odd.sequence_parallel_always = true;
  CHECK(contradiction(odd) == "sequence parallelism");
  odd = frameworks().front();
  odd.zero_allowed[3] = false;
  CHECK(contradiction(odd) == "instances of a ZeRO stage it lacks");
}

TEST_CASE("one framework stands for every software, and one for every kind of unknown ones") {
  std::set<std::pair<std::string_view, std::string_view>> software;
  std::multiset<Evident> unknown;
  for (const Framework& framework : frameworks()) {
    for (const FrameworkDefaults& defaults : framework.defaults) {
      INFO(defaults.software);
      if (defaults.evident != Evident::nothing) {
        unknown.insert(defaults.evident);
      } else {
        CHECK(software.emplace(defaults.software, defaults.detail).second);
      }
    }
  }
  CHECK(unknown == std::multiset<Evident>{Evident::splits_model, Evident::splits_optimizer,
                                          Evident::splits_data});
}

TEST_CASE("the default framework and the one that runs are of the list") {
  CHECK(find_framework(kDefaultFramework).ok());
  CHECK(executing_framework().name == kExecutingFramework);
  for (const Framework& framework : frameworks()) {
    CHECK((framework_choices() + " ").find(framework.name + " ") != std::string::npos);
  }
}

TEST_CASE("an unknown framework is refused with the nearest name and all of them") {
  const auto found = find_framework("nanotorn");
  REQUIRE_FALSE(found.ok());
  CHECK(found.error().hint.find("nanotron") != std::string::npos);
  CHECK(found.error().expected.find("megatron-core, megatron-2021") != std::string::npos);
}

}  // namespace
}  // namespace echelon

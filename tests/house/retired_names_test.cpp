// Retired names of this code for which the field has standard terms. None is declared again.
#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon::house {
namespace {

namespace fs = std::filesystem;

/// Retired name and the one to use.
using Names = std::map<std::string, std::string>;

/// Types: what follows class, struct, enum or using.
const Names& retired_types() {
  static const Names names{
      {"Pricer", "CostModel"},
      {"Cut", "LayerSharding"},
      {"CutCosts", "ShardingCosts"},
      {"Tuple", "SearchPoint"},
      {"Base", "DegreeNode"},
      {"Uneven", "PendingPartition"},
      {"Scored", "PricedPoint"},
      {"Programme", "LayerPartitioner"},
      {"Split", "LayerPartition"},
      {"Choice", "SearchResult"},
      {"PlanReport", "SearchOutcome"},
      {"NearMiss", "NearestInfeasible"},
      {"SpacePlan", "RankedPlan"},
      {"FrontPlan", "ParetoPoint"},
      {"CountResult", "GpuCountResult"},
      {"Operations", "TrainingEconomics"},
      {"Asked", "ResolvedRequest"},
      {"Verb", "Command"},
      {"Invocation", "CommandContext"},
      {"Child", "Subprocess"},
      {"Ended", "ExitStatus"},
      {"Scratch", "TempDir"},
      {"Comparand", "PlanWithPrediction"},
      {"TimeBeside", "TimeDelta"},
      {"WordsBeside", "FieldDelta"},
      {"Figure", "Metric"},
      {"FigureFacts", "MetricInfo"},
      {"Stack", "Framework"},
      {"RunHabits", "FrameworkDefaults"},
      {"RunFlag", "RowQualityFlag"},
      {"RunRow", "MeasuredRun"},
      {"CalibrationBook", "CalibrationSet"},
      {"Learned", "Refit"},
      {"ObservedRun", "RunObservation"},
      {"Pressing", "LargestMemory"},
      {"Simplified", "AblatedFeature"},
      {"Draft", "ScheduleDraft"},
      {"Drafter", "ScheduleBuilder"},
      {"Crew", "RunThreads"},
      {"Gate", "Monitor"},
      {"Ledger", "BufferHazardChecker"},
      {"Mesh", "TcpTransport"},
      {"MeshLine", "TcpChannel"},
      {"Lane", "PeerQueue"},
      {"Guest", "PendingPeer"},
      {"Hello", "JoinRequest"},
      {"Answer", "JoinReply"},
      {"Letter", "CallHeader"},
      {"Repeats", "GraphCache"},
      {"Lap", "Span"},
      {"Spent", "SubSpan"},
      {"Room", "DeviceBuffer"},
      {"Carver", "BumpAllocator"},
      {"Pass", "ChunkArguments"},
      {"Region", "FlatParameters"},
      {"States", "OptimizerState"},
      {"Sharing", "ZeroGroups"},
      {"Some", "Pack"},
      {"Sums", "Accumulator"},
      {"Desk", "PlanningSession"},
      {"Sheet", "Query"},
      {"Searcher", "BackgroundSearch"},
      {"PredictedCosts", "Prediction"},
  };
  return names;
}

/// Functions, members and variables: anywhere in code.
const Names& retired_words() {
  static const Names names{
      {"cut_of", "sharding_of"},
      {"cut_costs", "sharding_costs"},
      {"near_misses", "nearest_infeasible"},
      {"hearsay", "peer_report_wait"},
      {"keep_out", "disable_capture"},
      {"give_back", "free"},
      {"make_again", "recompute"},
      {"leave_attention", "output_projection"},
      {"leave_mlp", "down_projection"},
      {"largest_of_warp", "warp_max"},
      {"multiply_add", "mma"},
      {"turn_row", "apply_rope"},
      {"link_rows", "chain_equal_tokens"},
      {"look_up", "embed"},
      {"load_right_across", "load_b_transposed"},
      {"noted_kernels", "all_kernels"},
      {"bring_up_to_date", "refresh"},
      {"experts_pace", "moe_speed_factor"},
      {"hop_felt", "layer_latency_factor"},
      {"span_hop_felt", "ring_latency_factor"},
      {"bulk_hop_felt", "bulk_latency_factor"},
      {"host_hop_felt", "host_latency_factor"},
      {"held_collectives", "pending_collective_buffers"},
      {"beside_input", "overlaps_dgrad"},
  };
  return names;
}

/// Files, by name without suffix.
const Names& retired_files() {
  static const Names names{
      {"beside", "plan_diff"},
      {"close_up", "plan_detail"},
      {"pinning", "constraints_of_plan"},
      {"near_miss", "nearest_infeasible"},
      {"finalists", "simulate_step"},
      {"simulate_finalists", "simulate_step"},
      {"space", "ranked_plans"},
      {"front", "pareto_front"},
      {"noise", "repeatability"},
      {"folds", "cv_folds"},
      {"run_habits", "framework_defaults"},
      {"runs_io", "measured_runs_csv"},
      {"learning", "refit"},
      {"memory_figure", "memory_metric"},
      {"words", "format"},
      {"style", "terminal_style"},
      {"verdict", "plan_summary"},
      {"figures", "metrics"},
      {"of_plan", "lower_plan"},
      {"place", "buffer_allocation"},
      {"gather", "zero3_gathers"},
      {"draft", "schedule_draft"},
      {"number", "parse_quantity"},
      {"nearest", "did_you_mean"},
      {"packed_text", "compressed_text"},
      {"fingerprint", "content_hash"},
      {"child", "subprocess"},
      {"lanes", "simd_rows"},
  };
  return names;
}

/// Every retired name in the code below `root`, a line each: "core/a.cpp: Pricer, now CostModel".
std::string retired_in(const fs::path& root) {
  static const std::set<std::string> folders{"core",       "topologies", "costmodel", "planner",
                                             "evaluation", "interop",    "report",    "runtime",
                                             "cli",        "gui",        "bench"};
  static const std::regex declared(
      R"(\b(?:class|struct|enum|using)\s+(?:class\s+)?([A-Za-z_]\w*))");
  static const std::regex word(R"([A-Za-z_]\w*)");
  static const std::regex text(R"re("(\\.|[^"\\])*")re");
  std::set<std::string> found;
  const auto look_for = [&](const std::string& file, const std::string& name, const Names& names) {
    const auto retired = names.find(name);
    if (retired == names.end()) return;
    found.insert(file + ": " + name + ", now " + retired->second + "\n");
  };
  for (const std::string& folder : folders) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string suffix = entry.path().extension().string();
      if (suffix != ".hpp" && suffix != ".cpp" && suffix != ".cu" && suffix != ".cuh") continue;
      const std::string file = fs::relative(entry.path(), root).generic_string();
      look_for(file, entry.path().stem().string(), retired_files());
      std::istringstream lines(slurp(entry.path()));
      for (std::string line; std::getline(lines, line);) {
        line = std::regex_replace(line, text, "");
        const std::string code = line.substr(0, line.find("//"));
        for (std::sregex_iterator it(code.begin(), code.end(), declared), end; it != end; ++it) {
          look_for(file, (*it)[1], retired_types());
        }
        for (std::sregex_iterator it(code.begin(), code.end(), word), end; it != end; ++it) {
          look_for(file, it->str(), retired_words());
        }
      }
    }
  }
  std::string all;
  for (const std::string& each : found) all += each;
  return all;
}

TEST_CASE("no retired name is declared") { CHECK(retired_in(ECHELON_SOURCE_DIR) == ""); }

TEST_CASE("a retired name is found, as a type, as a word and as a file") {
  const TempDir tree;
  tree.write("core/a.cpp", "enum class Line { a };  // class Pricer\nstruct Pricer;\n");
  tree.write("gui/pinning.hpp",
             "const int x = cut_of(plan);  // \"cut\"\nauto y = \"make_again\";\n");
  tree.write("docs/changes.md", "struct Pricer\n");
  CHECK(retired_in(tree.path()) ==
        "core/a.cpp: Pricer, now CostModel\n"
        "gui/pinning.hpp: cut_of, now sharding_of\n"
        "gui/pinning.hpp: pinning, now constraints_of_plan\n");
}

}  // namespace
}  // namespace echelon::house

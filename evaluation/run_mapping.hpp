// From a row of a table of measured runs to something the cost model can price.
#pragma once

#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/framework/framework.hpp"
#include "core/model/model.hpp"
#include "core/plan/job.hpp"
#include "core/plan/parallel_plan.hpp"
#include "evaluation/measured_runs_csv_io.hpp"
#include "evaluation/run_model.hpp"
#include "topologies/topology.hpp"

namespace echelon {

/// A row, understood. `plan` is legal for the rest (planner/space/legality.hpp).
struct MappedRun {
  ModelSpec model;
  TrainingJob job;
  ClusterTopology cluster;
  Framework framework;  ///< ours; features the run evidently used are allowed
  ParallelPlan plan;
  std::vector<std::string> inferred;  ///< blanks that were filled in, in words
  std::string substitute;  ///< why `stack` stands for another software; "" when it is that one
};

/// A row that cannot be predicted, and why: the run used something this version does not price, or
/// the source does not say enough.
struct SkippedRun {
  std::string reason;
};

/// Maps rows one by one; keeps the machines it has built, since most rows share one.
class RunMapper {
 public:
  [[nodiscard]] std::variant<MappedRun, SkippedRun> map(const MeasuredRun& row);

 private:
  [[nodiscard]] Result<ClusterTopology> cluster(const MeasuredRun& row, std::int64_t gpus,
                                                std::vector<std::string>& inferred);
  struct KnownCluster {
    ClusterTopology cluster;
    std::vector<std::string> inferred;
  };
  std::map<std::string, KnownCluster> clusters_;
  RunModels models_;
};

/// Layers of each stage as nanotron splits them (StageSplit::by_cost): by cost (a layer 4h² + 3hf,
/// the head V·h) over equal thresholds. Source: nanotron src/nanotron/models/base.py, build_model.
/// There a stage is left once its cost is above its threshold, so that at an exact tie it takes one
/// layer more; the parameters per rank that published runs printed show that later runs left it at
/// equality. Checked by: tests/evaluation/run_mapping_test.cpp.
[[nodiscard]] std::vector<int> layers_by_cost(const ModelSpec& model, int pp,
                                              bool tie_stays_on_the_earlier_stage);

/// Megatron's forks leave one layer out of the first and the last stage (embedding and loss take
/// its place) when that makes the rest equal; otherwise as equal as can be.
[[nodiscard]] std::vector<int> ends_hold_fewer_layers(int layers, int pp, int vpp);

}  // namespace echelon

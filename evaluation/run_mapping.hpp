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

/// Megatron's forks leave one layer out of the first and the last stage (embedding and loss take
/// its place) when that makes the rest equal; otherwise as equal as can be.
[[nodiscard]] std::vector<int> ends_hold_fewer_layers(int layers, int pp, int vpp);

}  // namespace echelon

// One priced plan as JSON: shared by the reports of search, predict, compare and explain.
#pragma once

#include <optional>
#include <string>

#include "core/json/json_io.hpp"
#include "costmodel/calibration/memory_band.hpp"
#include "planner/economics.hpp"
#include "report/plan_files.hpp"

namespace echelon {

inline constexpr int kReportSchema = 3;
inline constexpr Seconds kDay{86400};

/// `score` and `simulated` are those of the candidate that `file` holds.
[[nodiscard]] Json candidate_json(const PlanFile& file, const Economics& money, const Score& score,
                                  bool simulated);
/// With the economics of the request's cluster and operations, and in `remarks` what the framework
/// asks for ("requires") and warns of ("warns").
[[nodiscard]] Json candidate_json(const PlanRequest& request, const Candidate& candidate,
                                  const Provenance& provenance);
/// Of packed sequences: lengths of their documents, the mean length of the one that a token lies
/// in, and the share of full attention that is left. The job has documents.
[[nodiscard]] Json documents_json(const TrainingJob& job);
/// Rank, targets, the number of trained parameters, and how all others are quantised. The job has
/// adapters.
[[nodiscard]] Json adapters_json(const PlanRequest& request);
/// "kind", "distribution", "bias", "spread" and "source".
[[nodiscard]] Json memory_band_json(const MemoryBand& band);
/// The request, with defaults filled in.
[[nodiscard]] Json request_json(const PlanRequest& request, const Provenance& provenance);
/// Whether the winner is proved, and the searched part of the space.
[[nodiscard]] Json certificate_json(const SearchOutcome& report);
/// Texts may contain user input; a byte that is not UTF-8 must not stop the report.
[[nodiscard]] std::string dumped(const Json& document);

}  // namespace echelon

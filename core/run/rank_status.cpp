#include "core/run/rank_status.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace echelon {
namespace {

using State = RankProgress::State;

std::string shown(const std::string& at) { return at.empty() ? "its start" : at; }

}  // namespace

std::string describe(const Suspect& suspect) {
  const double seconds = suspect.lasting.in(kSecond);
  switch (suspect.why) {
    case Suspect::Why::silent:
      return fmt::format("rank {} has sent nothing for {:.1f} s, last seen at {}", suspect.rank,
                         seconds, shown(suspect.what));
    case Suspect::Why::works:
      return fmt::format("rank {} holds up the others: it has been at {} for {:.1f} s",
                         suspect.rank, shown(suspect.what), seconds);
    case Suspect::Why::absent: break;
  }
  return fmt::format("rank {} has not joined {}", suspect.rank, suspect.what);
}

std::optional<Suspect> judge(std::span<const RankStatus> ranks, Seconds patience) {
  const RankStatus* silent = nullptr;
  const RankStatus* works = nullptr;
  const RankStatus* waits = nullptr;
  for (const RankStatus& each : ranks) {
    const RankProgress& p = each.progress;
    if (each.silent > patience) {
      if (silent == nullptr || each.silent > silent->silent) silent = &each;
    } else if (p.state == State::works) {
      if (p.lasting > patience && (works == nullptr || p.lasting > works->progress.lasting))
        works = &each;
    } else if (p.state == State::waits && !p.missing.empty()) {
      if (waits == nullptr || p.order < waits->progress.order) waits = &each;
    }
  }
  if (silent != nullptr) {
    return Suspect{silent->progress.rank, Suspect::Why::silent, silent->silent,
                   silent->progress.at};
  }
  if (works != nullptr) {
    return Suspect{works->progress.rank, Suspect::Why::works, works->progress.lasting,
                   works->progress.at};
  }
  if (waits == nullptr) return std::nullopt;
  const RankStatus* absent = nullptr;
  int rank = waits->progress.missing.front();
  for (const RankStatus& each : ranks) {
    const std::vector<int>& missing = waits->progress.missing;
    if (std::find(missing.begin(), missing.end(), each.progress.rank) == missing.end()) continue;
    const bool elsewhere =
        each.progress.state != State::waits || each.progress.order > waits->progress.order;
    if (absent != nullptr && !elsewhere) continue;
    absent = &each;
    rank = each.progress.rank;
    if (elsewhere) break;
  }
  std::string what = waits->progress.at;
  if (absent != nullptr) what += "; it is at " + shown(absent->progress.at);
  return Suspect{rank, Suspect::Why::absent, waits->progress.lasting, what};
}

}  // namespace echelon

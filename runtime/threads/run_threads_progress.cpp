// RunThreads: the states of the ranks, from those of the threads.
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/threads/clock.hpp"
#include "runtime/threads/run_threads.hpp"

namespace echelon {

std::vector<RankProgress> RunThreads::progress() {
  using State = RankProgress::State;
  std::map<int, RankProgress> ranks;
  const Seconds now = steady_now();
  const std::lock_guard lock(mutex_);
  for (const Member& member : members_) {
    if (!member.rank) continue;
    RankProgress& rank = ranks.try_emplace(*member.rank).first->second;
    rank.rank = *member.rank;
    if (member.over) continue;
    RankProgress own{.rank = rank.rank,
                     .state = member.waits ? State::idle : State::works,
                     .order = member.order,
                     .lasting = now - Seconds{member.since.load()},
                     .at = member.at,
                     .missing = {}};
    std::optional<WaitDescription> wait = member.noted;
    if (member.waiting != nullptr && *member.waiting) {
      try {
        wait = (*member.waiting)();
      } catch (const std::exception&) {  // as in whereabouts
      }
    }
    if (wait && member.waits) {
      own.at += ", " + wait->text;
      own.missing = wait->missing;
      if (!own.missing.empty()) own.state = State::waits;
    }
    // The longest work; if there is none, the wait that comes first in the run.
    const bool counts_more = own.state == State::works
                                 ? rank.state != State::works || own.lasting > rank.lasting
                                 : rank.state != State::works && own.state == State::waits &&
                                       (rank.state != State::waits || own.order < rank.order);
    if (counts_more || rank.at.empty()) rank = std::move(own);
  }
  std::vector<RankProgress> all;
  for (auto& [number, rank] : ranks) all.push_back(std::move(rank));
  return all;
}

}  // namespace echelon

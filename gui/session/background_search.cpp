#include "gui/session/background_search.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "planner/search/optimize.hpp"

namespace echelon::gui {

namespace {

/// Share of the progress bar for the search for the winner.
constexpr double kFirstShare = 0.2;

/// With the request as given, but on the chosen number of GPUs.
SpaceResultPtr space_result_of(const cli::ResolvedRequest& resolved, SearchResult choice) {
  cli::ResolvedRequest sized = resolved;
  sized.request = std::move(choice.request);
  sized.request.top = resolved.request.top;
  sized.request.whole_front = resolved.request.whole_front;
  return std::make_shared<const SpaceResult>(
      SpaceResult{std::move(sized), std::move(choice.report)});
}

}  // namespace

BackgroundSearch::BackgroundSearch(QObject* parent) : QObject(parent) {
  connect(&worker_, &Worker::progressed, this, &BackgroundSearch::progressed);
  connect(&worker_, &Worker::finished, this, &BackgroundSearch::finished);
}

void BackgroundSearch::search(cli::ResolvedRequest resolved) {
  worker_.start([this, resolved = std::move(resolved)](const Worker::Ticket& ticket) {
    const auto run = [&](PlanRequest request, double from, double to, bool complete) {
      const Result<SearchResult> choice = optimize(
          request, [&](double share) { return ticket.progress(from + (to - from) * share); });
      if (!choice) {
        ticket.deliver([this, error = choice.error()] { Q_EMIT failed(error); });
        return false;
      }
      if (ticket.stale()) return false;
      ticket.deliver([this, space = space_result_of(resolved, *choice), complete] {
        Q_EMIT found(space, complete);
      });
      return true;
    };
    PlanRequest quick = resolved.request;
    PlanRequest full = resolved.request;
    full.whole_front = true;
    full.top = std::max(resolved.request.top, kListedPlans);
    if (run(std::move(quick), 0, kFirstShare, false)) run(std::move(full), kFirstShare, 1, true);
  });
}

}  // namespace echelon::gui

#include "gui/searcher.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "planner/objective.hpp"

namespace echelon::gui {

namespace {

/// Of the progress shown, what the search for the winner takes.
constexpr double kFirstShare = 0.2;

/// The choice's request is the one asked, on the chosen number of GPUs.
SpaceShown shown_of(const cli::Asked& asked, SearchResult choice) {
  cli::Asked sized = asked;
  sized.request = std::move(choice.request);
  sized.request.top = asked.request.top;
  sized.request.without_front = asked.request.without_front;
  return std::make_shared<const ShownSpace>(ShownSpace{std::move(sized), std::move(choice.report)});
}

}  // namespace

Searcher::Searcher(QObject* parent) : QObject(parent) {
  connect(&worker_, &Worker::progressed, this, &Searcher::progressed);
  connect(&worker_, &Worker::finished, this, &Searcher::finished);
}

void Searcher::search(cli::Asked asked) {
  worker_.start([this, asked = std::move(asked)](const Worker::Ticket& ticket) {
    const auto run = [&](PlanRequest request, double from, double to, bool whole) {
      const Result<SearchResult> choice = optimize(
          request, [&](double share) { return ticket.progress(from + (to - from) * share); });
      if (!choice) {
        ticket.deliver([this, error = choice.error()] { Q_EMIT failed(error); });
        return false;
      }
      if (ticket.stale()) return false;
      ticket.deliver(
          [this, space = shown_of(asked, *choice), whole] { Q_EMIT found(space, whole); });
      return true;
    };
    PlanRequest quick = asked.request;
    // Only the front knows which plan needs least memory.
    quick.without_front = asked.request.objective != Objective::memory_headroom;
    PlanRequest whole = asked.request;
    whole.top = std::max(asked.request.top, kListed);
    if (run(std::move(quick), 0, kFirstShare, false)) run(std::move(whole), kFirstShare, 1, true);
  });
}

}  // namespace echelon::gui

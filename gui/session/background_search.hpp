// The search in a worker thread: first the winner, then the list of plans and the Pareto front.
#pragma once

#include <QObject>

#include "gui/session/results.hpp"
#include "gui/session/worker.hpp"

namespace echelon::gui {

/// Number of plans the second search lists; docs/gui.md has its cost.
inline constexpr int kListedPlans = 50;

class BackgroundSearch : public QObject {
  Q_OBJECT

 public:
  explicit BackgroundSearch(QObject* parent = nullptr);

  /// Replaces a running search. The first search finds only the best plans, for an early answer;
  /// the second lists `kListedPlans` plans and the Pareto front.
  void search(cli::ResolvedRequest resolved);
  void cancel() { worker_.cancel(); }
  [[nodiscard]] bool busy() const { return worker_.busy(); }

 Q_SIGNALS:
  void progressed(double share);  ///< of both searches together
  /// `complete`: the result of the second search.
  void found(const SpaceResultPtr& space, bool complete);
  void failed(const Error& error);
  void finished();

 private:
  Worker worker_;
};

}  // namespace echelon::gui

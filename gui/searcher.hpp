// The search beside the window: the winner first, then the plans around it.
#pragma once

#include <QObject>

#include "gui/shown.hpp"
#include "gui/worker.hpp"

namespace echelon::gui {

/// How many plans the second search lists. docs/gui.md has what it costs.
inline constexpr int kListed = 2000;

class Searcher : public QObject {
  Q_OBJECT

 public:
  explicit Searcher(QObject* parent = nullptr);

  /// Forgets what is running. A first search looks for the best plans alone, so that there is an
  /// answer soon; a second lists `kListed` plans and the Pareto front.
  void search(cli::Asked asked);
  void cancel() { worker_.cancel(); }
  [[nodiscard]] bool busy() const { return worker_.busy(); }

 Q_SIGNALS:
  void progressed(double share);  ///< of both searches together
  /// `whole`: with the front and all that is listed.
  void found(const SpaceShown& space, bool whole);
  void failed(const Error& error);
  void finished();

 private:
  Worker worker_;
};

}  // namespace echelon::gui

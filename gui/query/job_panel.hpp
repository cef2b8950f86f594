// Panel of the job: model, data, hardware and objective. Every entry is a flag.
#pragma once

#include <QScrollArea>
#include <map>

#include "gui/query/flag_entry.hpp"
#include "gui/session/planning_session.hpp"

namespace echelon::gui {

class JobPanel : public QScrollArea {
  Q_OBJECT

 public:
  explicit JobPanel(PlanningSession& session, QWidget* parent = nullptr);
  /// Null for a flag without an entry.
  [[nodiscard]] FlagEntry* field(const std::string& flag) const;

 Q_SIGNALS:
  void left();  ///< an entry, by Return or Escape

 private:
  void refresh();

  PlanningSession& session_;
  std::map<std::string, FlagEntry*> fields_;
  ErrorLabel* general_error_ = nullptr;  ///< error that belongs to no entry
};

}  // namespace echelon::gui

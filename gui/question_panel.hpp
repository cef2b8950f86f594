// What is asked: model, machine, batch, objective. Every entry is a flag.
#pragma once

#include <QScrollArea>
#include <map>

#include "gui/desk.hpp"
#include "gui/flag_entry.hpp"

namespace echelon::gui {

class QuestionPanel : public QScrollArea {
  Q_OBJECT

 public:
  explicit QuestionPanel(Desk& desk, QWidget* parent = nullptr);
  /// Null for a flag that is not asked here.
  [[nodiscard]] FlagEntry* field(const std::string& flag) const;

 Q_SIGNALS:
  void left();  ///< an entry, by a key that leaves it

 private:
  void refresh();

  Desk& desk_;
  std::map<std::string, FlagEntry*> fields_;
  Reason* elsewhere_ = nullptr;  ///< of an error that belongs to no entry
};

}  // namespace echelon::gui

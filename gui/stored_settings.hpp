// What the window remembers: layout, colours, recent files.
#pragma once

#include <QSettings>

namespace echelon::gui {

[[nodiscard]] inline QSettings stored_settings() {
  return QSettings(QSettings::IniFormat, QSettings::UserScope, QStringLiteral("echelon"),
                   QStringLiteral("plan-gui"));
}

}  // namespace echelon::gui

// Settings the window stores: layout, theme, recent files.
#pragma once

#include <QSettings>

namespace echelon::gui {

[[nodiscard]] inline QSettings stored_settings() {
  return QSettings(QSettings::IniFormat, QSettings::UserScope, QStringLiteral("echelon"),
                   QStringLiteral("plan-gui"));
}

}  // namespace echelon::gui

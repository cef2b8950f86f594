// Theme, layout and closing of the window.
#include <QApplication>
#include <QChildEvent>
#include <QCloseEvent>
#include <QMessageBox>
#include <QPushButton>
#include <QScreen>
#include <QSettings>
#include <QStyle>
#include <QTabBar>
#include <QTimer>

#include "gui/app/stored_settings.hpp"
#include "gui/app/window.hpp"
#include "gui/run/run_view.hpp"

namespace echelon::gui {

namespace {

constexpr int kLayoutVersion = 2;  // of the docks: the layout of another version is not restored
constexpr int kFrameDelay = 200;   // ms

}  // namespace

void Window::set_theme(Theme theme) {
  theme_ = theme;
  message_->setPalette({});  // the colour of its text belongs to the old theme
  apply_theme(*static_cast<QApplication*>(QApplication::instance()), theme);
}

void Window::restore_layout() {
  fit_screen();
  first_layout_ = saveState(kLayoutVersion);
  QSettings stored = stored_settings();
  restoreGeometry(stored.value(QStringLiteral("geometry")).toByteArray());
  restoreState(stored.value(QStringLiteral("layout")).toByteArray(), kLayoutVersion);
  const QString colours = stored.value(QStringLiteral("colours")).toString();
  set_theme(colours == QLatin1String("light")  ? Theme::light
            : colours == QLatin1String("dark") ? Theme::dark
                                               : Theme::system);
}

void Window::reset_layout() {
  fit_screen();
  restoreState(first_layout_, kLayoutVersion);
}

/// A comfortable size, but no larger than the screen including the window frame.
void Window::fit_screen() {
  constexpr QSize kPreferred(1440, 900);
  const QSize frame = isVisible() ? frameGeometry().size() - size()
                                  : QSize(0, style()->pixelMetric(QStyle::PM_TitleBarHeight));
  const QRect available = screen()->availableGeometry();
  resize(kPreferred.boundedTo(available.size() - frame));
  if (!available.contains(frameGeometry())) move(available.topLeft());
}

void Window::show_on_screen() {
  show();
  // The window manager adds the frame a moment later.
  QTimer::singleShot(kFrameDelay, this, [this] {
    if (isMaximized() || isFullScreen()) return;
    const QRect available = screen()->availableGeometry();
    const QSize largest = available.size() - (frameGeometry().size() - size());
    if (width() > largest.width() || height() > largest.height()) resize(size().boundedTo(largest));
    if (!available.contains(frameGeometry())) move(available.topLeft());
  });
}

/// Qt creates the tab bars of docks on demand; their tabs scroll instead of being elided.
void Window::childEvent(QChildEvent* event) {
  QMainWindow::childEvent(event);
  if (event->type() != QEvent::ChildPolished) return;
  if (auto* tabs = qobject_cast<QTabBar*>(event->child())) {
    tabs->setElideMode(Qt::ElideNone);
    tabs->setUsesScrollButtons(true);
  }
}

/// Asks before anything that cannot be recovered is lost.
bool Window::confirm_close() {
  const auto confirmed = [this](const QString& text, const QString& loss) {
    QMessageBox box(QMessageBox::Question, tr("Quit?"), text, QMessageBox::Cancel, this);
    QPushButton* proceed = box.addButton(loss, QMessageBox::DestructiveRole);
    box.setDefaultButton(QMessageBox::Cancel);
    box.exec();
    return box.clickedButton() == proceed;
  };
  if (run_->running() &&
      !confirmed(tr("A run is in progress: %1").arg(run_->status()), tr("Stop and quit"))) {
    return false;
  }
  if (writer_.busy() &&
      !confirmed(tr("%1 is being written.").arg(writer_.path()), tr("Discard and quit"))) {
    return false;
  }
  return run_->confirm_drop_report() && confirm_leave_session();
}

/// Asks for a session with a file; one without is restored when the window opens again.
bool Window::confirm_leave_session() {
  if (!session_.document().is_session || !session_.modified()) return true;
  const auto answer = QMessageBox::question(
      this, tr("Save?"), tr("%1 has unsaved changes.").arg(windowFilePath()),
      QMessageBox::Save | QMessageBox::Discard | QMessageBox::Cancel, QMessageBox::Save);
  if (answer == QMessageBox::Save) {
    choose_and_save(false);
    return !session_.modified();
  }
  return answer == QMessageBox::Discard;
}

void Window::closeEvent(QCloseEvent* event) {
  if (!confirm_close()) return event->ignore();
  save_last_session();
  QSettings stored = stored_settings();
  stored.setValue(QStringLiteral("geometry"), saveGeometry());
  stored.setValue(QStringLiteral("layout"), saveState(kLayoutVersion));
  stored.setValue(QStringLiteral("colours"), theme_name(theme_));
  stop_all();  // at once, so that no search waits for the end of another
  QMainWindow::closeEvent(event);
}

}  // namespace echelon::gui

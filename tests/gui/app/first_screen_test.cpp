// The first screen: welcome page, entries, shortcuts, sizes.
#include <QCommandLinkButton>
#include <QLineEdit>
#include <QPushButton>
#include <QScreen>
#include <cmath>

#include "gui/canvas/theme.hpp"
#include "tests/gui/view_test.hpp"
#include "tests/gui/window_test_fixture.hpp"

using namespace echelon;

namespace {

QAbstractButton* button_with(gui::Window& window, const char* words) {
  for (auto* each : window.findChildren<QAbstractButton*>()) {
    if (each->text().contains(words)) return each;
  }
  return nullptr;
}

/// WCAG 2.1, relative luminance and contrast ratio.
double contrast(const QColor& a, const QColor& b) {
  const auto luminance = [](const QColor& colour) {
    const auto linear = [](double part) {
      return part <= 0.04045 ? part / 12.92 : std::pow((part + 0.055) / 1.055, 2.4);
    };
    return 0.2126 * linear(colour.redF()) + 0.7152 * linear(colour.greenF()) +
           0.0722 * linear(colour.blueF());
  };
  const double over = luminance(a) + 0.05;
  const double under = luminance(b) + 0.05;
  return std::max(over, under) / std::min(over, under);
}

/// `over` blended with `under`.
QColor blended(const QColor& over, const QColor& under) {
  const double alpha = over.alphaF();
  const auto mix = [&](int a, int b) { return static_cast<int>(alpha * a + (1 - alpha) * b); };
  return {mix(over.red(), under.red()), mix(over.green(), under.green()),
          mix(over.blue(), under.blue())};
}

}  // namespace

TEST_CASE("the first screen shows examples and no errors") {
  const WindowFixture fixture(false);
  gui::Window& window = *fixture.window;
  window.resize(1280, 800);
  QCoreApplication::processEvents();
  CHECK(pixels_of(window, gui::error_colour(window.palette()), 4) == 0);
  for (const char* model : {"llama2-7b", "llama3-70b", "llama3.1-405b", "deepseek-v3"}) {
    CAPTURE(model);
    CHECK(button_with(window, model) != nullptr);
  }
  QAbstractButton* example = button_with(window, "llama3-70b");
  REQUIRE(example != nullptr);
  REQUIRE(example->isVisible());
  QTest::mouseClick(example, Qt::LeftButton);
  REQUIRE(window.session().resolved());
  CHECK(window.session().resolved()->request.model.name == "llama3-70b");
  CHECK(window.session().resolved()->request.cluster.gpus() == 256);
  CHECK_FALSE(example->isVisible());
  window.session().undo();
  CHECK(example->isVisible());
}

TEST_CASE("the first screen lists recent files and the last session") {
  WindowFixture fixture;
  REQUIRE(fixture.window->save_session(fixture.file("mine.json")).ok());
  fixture.window = std::make_unique<gui::Window>();
  fixture.window->show();
  QAbstractButton* recent = button_with(*fixture.window, "mine.json");
  REQUIRE(recent != nullptr);
  QTest::mouseClick(recent, Qt::LeftButton);
  CHECK(fixture.window->session().resolved()->request.model.name == "gpt2");
  fixture.window->session().undo();
  fixture.window->session().set_request_flag("model", "gpt2-tiny");
  fixture.window->session().set_request_flag("gpus", "2");
  CHECK(fixture.window->close());

  fixture.window = std::make_unique<gui::Window>();
  fixture.window->show();
  QAbstractButton* last = button_with(*fixture.window, "Restore the last session");
  REQUIRE(last != nullptr);
  QTest::mouseClick(last, Qt::LeftButton);
  CHECK(fixture.window->session().resolved()->request.model.name == "gpt2-tiny");
}

TEST_CASE("an entry shows its error when it is left or after a pause, not during typing") {
  const WindowFixture fixture;
  gui::FlagEntry& gpus = *fixture.window->job_panel().field("gpus");
  gpus.entry().selectAll();
  QTest::keyClicks(&gpus.entry(), "13");
  REQUIRE(fixture.window->session().request_error());
  CHECK(gpus.reason().isEmpty());
  CHECK(pixels_of(gpus, gui::error_colour(gpus.palette()), 4) == 0);
  QTest::keyClick(&gpus.entry(), Qt::Key_Return);
  CHECK(gpus.reason().contains("16"));
  gpus.entry().selectAll();
  QTest::keyClicks(&gpus.entry(), "8");
  CHECK(gpus.reason().isEmpty());
  QTest::keyClicks(&gpus.entry(), "1");
  CHECK(gpus.reason().isEmpty());
  CHECK(QTest::qWaitFor([&] { return !gpus.reason().isEmpty(); }, 5000));
}

TEST_CASE("after Return letters are shortcuts again: tp 8, Return, B") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  QApplication::setActiveWindow(&window);
  const ParallelPlan best = window.session().plan()->candidate.plan;
  const auto type_and_leave = [&](QLineEdit& entry, const char* text, Qt::Key by) {
    entry.setFocus();
    entry.selectAll();
    QTest::keyClicks(&entry, text);
    QTest::keyClick(QApplication::focusWidget(), by);
  };
  for (const Qt::Key by : {Qt::Key_Return, Qt::Key_Escape}) {
    type_and_leave(window.controls().control("tp")->entry(), "4", by);
    CHECK(window.session().plan()->candidate.plan.tp == 4);
    CHECK_FALSE(window.controls().control("tp")->entry().hasFocus());
    QTest::keyClick(QApplication::focusWidget(), Qt::Key_B);
    CHECK(window.session().plan()->candidate.plan == best);
  }
  // A combo box, and an entry of the job.
  type_and_leave(window.controls().control("recompute")->entry(), "full", Qt::Key_Return);
  QTest::keyClick(QApplication::focusWidget(), Qt::Key_B);
  CHECK(window.session().plan()->candidate.plan == best);
  type_and_leave(window.job_panel().field("seq")->entry(), "512", Qt::Key_Return);
  CHECK_FALSE(window.job_panel().field("seq")->entry().hasFocus());
  CHECK(window.job_panel().field("seq")->text() == "512");
}

TEST_CASE("number entries accept only digits, and letters remain shortcuts") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  QApplication::setActiveWindow(&window);
  const ParallelPlan best = window.session().plan()->candidate.plan;
  for (const char* flag : {"tp", "pp", "dp", "microbatch", "zero"}) {
    CAPTURE(flag);
    QLineEdit& entry = window.controls().control(flag)->entry();
    entry.setFocus();
    const QString before = entry.text();
    QTest::keyClicks(&entry, "x,.");
    CHECK(entry.text() == before);
  }
  QLineEdit& tp = window.controls().control("tp")->entry();
  tp.setFocus();
  tp.selectAll();
  QTest::keyClicks(&tp, "4");
  CHECK(window.session().plan()->candidate.plan.tp == 4);
  QTest::keyClick(&tp, Qt::Key_B);
  CHECK(window.session().plan()->candidate.plan == best);
}

TEST_CASE("the window opens within the screen and is usable at 1024 x 700") {
  const WindowFixture fixture;
  gui::Window& window = *fixture.window;
  const QSize available = window.screen()->availableGeometry().size();
  const QSize minimum = window.minimumSizeHint();
  CHECK(window.width() <= std::max(available.width(), minimum.width()));
  CHECK(window.height() <= std::max(available.height(), minimum.height()));
  constexpr int kFrame = 28;
  CHECK(minimum.width() <= 1024);
  CHECK(minimum.height() <= 700 - kFrame);
  window.resize(1024, 700 - kFrame);
  QCoreApplication::processEvents();
  CHECK(window.size() == QSize(1024, 700 - kFrame));
  // Every tile fits a metric; the tabs below keep their names.
  CHECK(window.card().height() > gui::SummaryCard().sizeHint().height() / 2);
  for (const QTabBar* tabs : window.findChildren<QTabBar*>()) {
    CHECK(tabs->elideMode() == Qt::ElideNone);
  }
}

TEST_CASE("grey text has a contrast of at least 4.5:1 in both themes") {
  for (const gui::Theme theme : {gui::Theme::light, gui::Theme::dark}) {
    gui::apply_theme(*qApp, theme);
    const QPalette palette = QApplication::palette();
    const QColor base = palette.color(QPalette::Base);
    CHECK(contrast(blended(palette.color(QPalette::PlaceholderText), base), base) >= 4.5);
    CHECK(contrast(palette.color(QPalette::HighlightedText), palette.color(QPalette::Highlight)) >=
          4.5);
    if (theme == gui::Theme::light) continue;  // Qt's own grey on light
    CHECK(contrast(palette.color(QPalette::Disabled, QPalette::WindowText),
                   palette.color(QPalette::Window)) >= 4.2);
  }
  gui::apply_theme(*qApp, gui::Theme::light);
}

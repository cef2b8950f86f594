// The window as somebody meets it: the first page, entries, keys, sizes.
#include <QCommandLinkButton>
#include <QLineEdit>
#include <QPushButton>
#include <QScreen>
#include <cmath>

#include "gui/theme.hpp"
#include "tests/gui/opened.hpp"
#include "tests/gui/shown.hpp"

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

/// `over` with what shines through it.
QColor blended(const QColor& over, const QColor& under) {
  const double alpha = over.alphaF();
  const auto mix = [&](int a, int b) { return static_cast<int>(alpha * a + (1 - alpha) * b); };
  return {mix(over.red(), under.red()), mix(over.green(), under.green()),
          mix(over.blue(), under.blue())};
}

}  // namespace

TEST_CASE("the first screen is no error: examples, and none of it red") {
  const Opened opened(false);
  gui::Window& window = *opened.window;
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
  REQUIRE(window.desk().asked());
  CHECK(window.desk().asked()->request.model.name == "llama3-70b");
  CHECK(window.desk().asked()->request.cluster.gpus() == 256);
  CHECK_FALSE(example->isVisible());
  window.desk().undo();
  CHECK(example->isVisible());
}

TEST_CASE("files that were opened or saved, and the last session, are a click away") {
  Opened opened;
  REQUIRE(opened.window->save_session(opened.file("mine.json")).ok());
  opened.window = std::make_unique<gui::Window>();
  opened.window->show();
  QAbstractButton* recent = button_with(*opened.window, "mine.json");
  REQUIRE(recent != nullptr);
  QTest::mouseClick(recent, Qt::LeftButton);
  CHECK(opened.window->desk().asked()->request.model.name == "gpt2");
  opened.window->desk().undo();
  opened.window->desk().ask("model", "gpt2-tiny");
  opened.window->desk().ask("gpus", "2");
  CHECK(opened.window->close());

  opened.window = std::make_unique<gui::Window>();
  opened.window->show();
  QAbstractButton* last = button_with(*opened.window, "where the window was closed");
  REQUIRE(last != nullptr);
  QTest::mouseClick(last, Qt::LeftButton);
  CHECK(opened.window->desk().asked()->request.model.name == "gpt2-tiny");
}

TEST_CASE("an entry is judged when it is left or a moment has passed, not while it is typed into") {
  const Opened opened;
  gui::FlagEntry& gpus = *opened.window->question().field("gpus");
  gpus.entry().selectAll();
  QTest::keyClicks(&gpus.entry(), "13");
  REQUIRE(opened.window->desk().question_error());
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

TEST_CASE("keys after an edit are the window's again: tp 8, Return, B") {
  const Opened opened;
  gui::Window& window = *opened.window;
  QApplication::setActiveWindow(&window);
  const ParallelPlan best = window.desk().plan()->candidate.plan;
  const auto type_and_leave = [&](QLineEdit& entry, const char* text, Qt::Key by) {
    entry.setFocus();
    entry.selectAll();
    QTest::keyClicks(&entry, text);
    QTest::keyClick(QApplication::focusWidget(), by);
  };
  for (const Qt::Key by : {Qt::Key_Return, Qt::Key_Escape}) {
    type_and_leave(window.controls().control("tp")->entry(), "4", by);
    CHECK(window.desk().plan()->candidate.plan.tp == 4);
    CHECK_FALSE(window.controls().control("tp")->entry().hasFocus());
    QTest::keyClick(QApplication::focusWidget(), Qt::Key_B);
    CHECK(window.desk().plan()->candidate.plan == best);
  }
  // An entry with a list, and one of the question.
  type_and_leave(window.controls().control("recompute")->entry(), "full", Qt::Key_Return);
  QTest::keyClick(QApplication::focusWidget(), Qt::Key_B);
  CHECK(window.desk().plan()->candidate.plan == best);
  type_and_leave(window.question().field("seq")->entry(), "512", Qt::Key_Return);
  CHECK_FALSE(window.question().field("seq")->entry().hasFocus());
  CHECK(window.question().field("seq")->text() == "512");
}

TEST_CASE("entries of numbers take digits alone, and letters are keys there, too") {
  const Opened opened;
  gui::Window& window = *opened.window;
  QApplication::setActiveWindow(&window);
  const ParallelPlan best = window.desk().plan()->candidate.plan;
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
  CHECK(window.desk().plan()->candidate.plan.tp == 4);
  QTest::keyClick(&tp, Qt::Key_B);
  CHECK(window.desk().plan()->candidate.plan == best);
}

TEST_CASE("the window opens within its screen, and is usable at 1024 by 700") {
  const Opened opened;
  gui::Window& window = *opened.window;
  const QSize room = window.screen()->availableGeometry().size();
  const QSize least = window.minimumSizeHint();
  CHECK(window.width() <= std::max(room.width(), least.width()));
  CHECK(window.height() <= std::max(room.height(), least.height()));
  constexpr int kFrame = 28;
  CHECK(least.width() <= 1024);
  CHECK(least.height() <= 700 - kFrame);
  window.resize(1024, 700 - kFrame);
  QCoreApplication::processEvents();
  CHECK(window.size() == QSize(1024, 700 - kFrame));
  // Every tile has room for a figure; the tabs below keep their names.
  CHECK(window.card().height() > gui::VerdictCard().sizeHint().height() / 2);
  for (const QTabBar* tabs : window.findChildren<QTabBar*>()) {
    CHECK(tabs->elideMode() == Qt::ElideNone);
  }
}

TEST_CASE("what is grey can be read: at least 4.5 to 1 in both themes") {
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

#include "gui/canvas/painting.hpp"

#include <QApplication>

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("words that are too wide lose whole clauses before they are cut") {
  const QFontMetricsF metrics(QApplication::font());
  const QString words = "6.1 % fill/drain, 0.2 % imbalance";
  const auto within = [&](const QString& space) {
    return gui::clauses_within(words, metrics, metrics.horizontalAdvance(space) + 1);
  };
  CHECK(within(words) == words);
  CHECK(within("6.1 % fill/drain, 0.2 %") == "6.1 % fill/drain");
  CHECK(within("6.1 % fill") != "6.1 % fill/drain");
  CHECK(within("6.1 % fill").startsWith("6.1"));
}

#include "report/text/table.hpp"

#include <string>

#include "report/terminal_style.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

Table three_columns() {
  Table table({{"name", Table::Align::left, 0}, {"count"}, {"remark", Table::Align::left, 1}});
  table.add({"a", "1", "short"});
  table.add({"bb", "1,000", "a remark that is long enough to be folded into lines"});
  return table;
}

}  // namespace

TEST_CASE("columns are aligned, numbers on the right") {
  Table table({{"name", Table::Align::left, 0}, {"count"}});
  table.add({"a", "1"});
  table.add({"bb", "1,000"});
  CHECK(table.text({}) ==
        "  name  count\n"
        "  a         1\n"
        "  bb    1,000\n");
}

TEST_CASE("a long last column is wrapped before anything is left out") {
  CHECK(three_columns().text({40, false, true}) ==
        "  name  count  remark\n"
        "  a         1  short\n"
        "  bb    1,000  a remark that is long\n"
        "               enough to be folded into\n"
        "               lines\n");
}

TEST_CASE("if the width is too small, the dispensable column is dropped") {
  CHECK(three_columns().text({25, false, true}) ==
        "  name  count\n"
        "  a         1\n"
        "  bb    1,000\n");
}

TEST_CASE("a column with the same value in every row can be dropped") {
  Table table({{"n"}, {"sp"}, {"x"}});
  table.add({"1", "no", "5"});
  table.add({"2", "no", "6"});
  table.drop_constant(1, "no");
  table.drop_constant(2, "5");
  CHECK(table.text({}) == "  n  x\n  1  5\n  2  6\n");
}

TEST_CASE("colour changes no column") {
  Table table({{"", Table::Align::left, 0}, {""}});
  table.add({Cell("a", Paint::good), "1"});
  table.add({"bbb", "2"});
  CHECK(table.text({80, true, true}) == "  \x1b[32ma\x1b[0m    1\n  bbb  2\n");
  CHECK(columns_of("\x1b[32ma·b\x1b[0m") == 3);
}

TEST_CASE("bars are proportional, visible if small, and ASCII if required") {
  CHECK(bar(0.5, 4, {}) == "██");
  CHECK(bar(0.001, 4, {}) == "▏");
  CHECK(bar(0, 4, {}).empty());
  CHECK(bar(7, 4, {}) == "████");
  CHECK(bar(0.5, 4, {80, false, false}) == "##");
}

TEST_CASE("text is wrapped at words with a hanging indent") {
  CHECK(folded("one two three four five", "- ", {22, false, true}) ==
        "- one two three four\n  five\n");
  CHECK(folded("", "- ", {}) == "- \n");
}

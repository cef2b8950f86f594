// Lines of logs and patterns in them.
#include "interop/logs/lines.hpp"

#include <string>
#include <vector>

#include "interop/logs/pattern.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

std::vector<std::string> lines_of(std::string_view text) {
  LogLines lines(text, "a.log");
  std::vector<std::string> out;
  for (LogLine line; lines.next(line);) {
    out.push_back(std::to_string(line.number) + ":" + std::string(line.text));
  }
  return out;
}

TEST_CASE("lines are numbered as an editor numbers them, bars share a line") {
  CHECK(lines_of("a\n\nb") == std::vector<std::string>{"1:a", "2:", "3:b"});
  CHECK(lines_of("x\ry\rz\nlast\n") == std::vector<std::string>{"1:x", "1:y", "1:z", "2:last"});
  CHECK(lines_of("").empty());
}

TEST_CASE("colours of a terminal are left out of a line") {
  CHECK(lines_of("\x1b[36mstep: 1\x1b[0m \x1b[38;2;1;2;3mloss\x1b[39m") ==
        std::vector<std::string>{"1:step: 1 loss"});
  CHECK(lines_of("cut \x1b[3") == std::vector<std::string>{"1:cut "});
}

TEST_CASE("a file is read as its text is, over the ends of blocks") {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += "line " + std::to_string(i) + "\n";
  const TempDir dir;
  dir.write("long.log", text);
  auto lines = LogLines::open((dir.path() / "long.log").string());
  REQUIRE(lines.ok());
  std::int64_t count = 0;
  for (LogLine line; lines->next(line); ++count) {
    if (line.text == "line " + std::to_string(count) && line.number == count + 1) continue;
    FAIL(std::string(line.text));
  }
  CHECK(count == 300'000);
  CHECK(lines->position() == static_cast<std::int64_t>(text.size()));
}

TEST_CASE("a line over the limit is refused with its number") {
  const std::string text = "fine\n" + std::string(kMostLineBytes + 1, 'x') + "\nfine\n";
  LogLines lines(text, "core.bin");
  LogLine line;
  CHECK(lines.next(line));
  CHECK_FALSE(lines.next(line));
  REQUIRE(lines.error().has_value());
  CHECK(lines.error()->where == "core.bin, line 2");
  CHECK_FALSE(lines.next(line));
}

TEST_CASE("a folder and a missing file are no logs") {
  const TempDir dir;
  CHECK_FALSE(LogLines::open(dir.path().string()).ok());
  CHECK_FALSE(LogLines::open((dir.path() / "none").string()).ok());
}

double first_number(std::string_view line, std::string_view pattern, bool suffixes = false) {
  const auto match = find_pattern(line, pattern, suffixes);
  REQUIRE(match.has_value());
  return match->numbers[0];
}

TEST_CASE("a pattern finds its numbers anywhere in a line") {
  const auto match =
      find_pattern("[n1:0]: [x] iteration       50/  242204 | consumed", "iteration~#/ #");
  REQUIRE(match.has_value());
  CHECK(match->numbers[0] == 50);
  CHECK(match->numbers[1] == 242204);
  CHECK(first_number("iteration=       3/  317892", "iteration~#/ #") == 3);
  CHECK(first_number("loss: 6.258318E+00 |", "loss: #") == Approx(6.258318));
  CHECK(first_number("tps: 6,785  mfu", "tps: #") == 6785);
  CHECK(first_number("tps: 1,234,567", "tps: #") == 1234567);
  CHECK_FALSE(find_pattern("iteration x/ 3", "iteration~#/ #").has_value());
  CHECK_FALSE(find_pattern("", "a #").has_value());
}

TEST_CASE("suffixes are thousands, but not the M of MiB") {
  CHECK(first_number("ms: 8.79K |", "ms: #", true) == Approx(8790));
  CHECK(first_number("tokens: 1.02B", "tokens: #", true) == Approx(1.02e9));
  CHECK(first_number("Peak 309.29MiB.", "Peak #MiB", true) == Approx(309.29));
  CHECK(first_number("ms: 8.79K |", "ms: #") == Approx(8.79));
}

TEST_CASE("durations of bars are minutes or hours") {
  CHECK(first_number("| [05:54<00:00", "| [%<") == 354);
  CHECK(first_number("| [1:03:17<00:00", "| [%<") == 3797);
  CHECK_FALSE(find_pattern("| [?<", "| [%<").has_value());
}

TEST_CASE("time stamps of one log differ by what passed") {
  const auto between = [](std::string_view a, std::string_view b) {
    return *time_stamp_of(b) - *time_stamp_of(a);
  };
  CHECK(between(" [2025-03-31 05:54:07] it", " [2025-03-31 05:55:20] it") == 73);
  CHECK(between("[2025-03-31 23:59:59]", "[2025-04-01 00:00:01]") == 2);
  CHECK(between("2025-12-14 05:43:30,311 -", "2025-12-14 05:43:30,811 -") == Approx(0.5));
  CHECK(between("08/31/2024 14:37:22 [INFO", "08/31/2024 14:37:26 [INFO") == 4);
  CHECK(between("08/31 14:37:22 [INFO", "09/01 14:37:22 [INFO") == 86400);
  CHECK_FALSE(time_stamp_of("took 14:37:22 of 99:99:99").has_value());
  CHECK_FALSE(time_stamp_of("2025-13-41 05:54:07").has_value());
}

}  // namespace
}  // namespace echelon

#include "core/base/filter_terms.hpp"

#include <string>

#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

/// The terms as "name value|": which operator, see below.
std::string terms(const std::string& text) {
  const auto parsed = parse_filter_terms(text, "filter");
  if (!parsed) return parsed.error().message();
  std::string out;
  for (const FilterTerm& term : *parsed) out += term.name + " " + term.value + "|";
  return out;
}

}  // namespace

TEST_CASE("commas and blanks separate the terms of a filter") {
  CHECK(terms("") == "");
  CHECK(terms(" ,, ") == "");
  CHECK(terms("tp=8 step<2s fits") == "tp 8|step 2s| fits|");
  CHECK(terms("stack=nanotron,gpus>=64,grade=A") == "stack nanotron|gpus 64|grade A|");
  CHECK(terms("gpus >= 64\t,tp= 2") == "gpus 64|tp 2|");
  CHECK(terms("group!=,tp=2") == "group |tp 2|");
  CHECK(terms("group!= tp=2") == "group |tp 2|");
  CHECK(terms("note=a=b") == "note a=b|");
}

TEST_CASE("a bare word knows whether it continues a value") {
  const auto parsed = parse_filter_terms("source=a paper,fits", "filter").value();
  REQUIRE(parsed.size() == 3);
  CHECK(parsed[1].is_word());
  CHECK_FALSE(parsed[1].after_comma);
  CHECK(parsed[2].after_comma);
}

TEST_CASE("an operator is read whole, and needs a name") {
  CHECK(parse_filter_terms("a<=1", "f").value()[0].comparison == FilterComparison::at_most);
  CHECK(parse_filter_terms("a<1", "f").value()[0].comparison == FilterComparison::less);
  CHECK(parse_filter_terms("a!=1", "f").value()[0].comparison == FilterComparison::not_equal);
  CHECK(terms("=4").find("'=4' is not a condition") != std::string::npos);
  CHECK(terms("tp!4").find("'tp!4' is not a condition") != std::string::npos);
  CHECK(needs_order(FilterComparison::less));
  CHECK_FALSE(needs_order(FilterComparison::not_equal));
  CHECK(holds(2, FilterComparison::at_least, 2));
  CHECK_FALSE(holds(2, FilterComparison::more, 2));
}

#include "core/base/text.hpp"

#include <string>

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("a quoted text is short and printable") {
  CHECK(in_quotes("tp") == "'tp'");
  CHECK(in_quotes("") == "''");
  CHECK(in_quotes("a\nb\x7f") == "'a?b?'");
  CHECK(in_quotes(std::string(60, 'x')) == "'" + std::string(60, 'x') + "'");
  CHECK(in_quotes(std::string(61, 'x')) == "'" + std::string(60, 'x') + "...'");
  CHECK(in_quotes("abcd", 3) == "'abc...'");
  CHECK(in_quotes("K\xc3\xb6ln") == "'K\xc3\xb6ln'");
  CHECK(in_quotes("K\xc3\xb6ln", 2) == "'K...'");
  CHECK(printable("a\tb") == "a?b");
}

TEST_CASE("only ASCII letters have a lower case") {
  CHECK(lower_case("LLaMA-2 \xc3\x84") == "llama-2 \xc3\x84");
  CHECK(lower_case('Z') == 'z');
  CHECK(lower_case('[') == '[');
}

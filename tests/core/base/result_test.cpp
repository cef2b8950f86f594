#include "core/base/result.hpp"

#include <memory>
#include <string>

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("a message contains the place, the input, the expected input and a hint") {
  const Error error = input_error("--gpus", "'six'", "a whole number", "write 6");
  CHECK(error.message() == "--gpus: 'six'; expected a whole number; write 6");
}

TEST_CASE("empty parts of a message leave no punctuation") {
  CHECK(input_error("--gpus", "'six'", "").message() == "--gpus: 'six'");
  CHECK(input_error("", "'six'", "a number").message() == "'six'; expected a number");
  CHECK(environment_error("a.json", "cannot be read").message() == "a.json: cannot be read");
  CHECK(Error{}.message().empty());
}

TEST_CASE("input and environment errors have different kinds") {
  CHECK(input_error("", "", "").kind == Error::Kind::input);
  CHECK(environment_error("", "").kind == Error::Kind::environment);
}

TEST_CASE("a result is a value or an error") {
  const Result<int> seven = 7;
  REQUIRE(seven.ok());
  CHECK(static_cast<bool>(seven));
  CHECK(*seven == 7);
  const Result<int> none = input_error("--n", "nothing", "a number");
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().where == "--n");
}

TEST_CASE("a result may hold a text that is no error") {
  const Result<std::string> text = std::string("fine");
  REQUIRE(text.ok());
  CHECK(text->size() == 4);
}

TEST_CASE("a value moves out of a result") {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(5);
  const std::unique_ptr<int> owned = *std::move(result);
  REQUIRE(owned != nullptr);
  CHECK(*owned == 5);
}

TEST_CASE("a status carries nothing but success") {
  const Status fine = Done{};
  CHECK(fine.ok());
  const Status bad = environment_error("disk", "full");
  CHECK_FALSE(bad.ok());
}

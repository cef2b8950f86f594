#include "core/base/did_you_mean.hpp"

#include <string>
#include <vector>

#include "tests/support/catch.hpp"

using namespace echelon;

TEST_CASE("one edit of each kind finds the name") {
  const std::vector<std::string> known = {"gpt2", "llama-7b", "mistral-7b"};
  CHECK(nearest_name("lama-7b", known) == "llama-7b");    // a missing letter
  CHECK(nearest_name("lllama-7b", known) == "llama-7b");  // an extra letter
  CHECK(nearest_name("llama-7c", known) == "llama-7b");   // another letter
  CHECK(nearest_name("mistarl-7b", known) == "mistral-7b");
}

TEST_CASE("swapped adjacent letters count as one edit") {
  // "abdc" is one swap from "abcd" but one substitution from "abxc" as well only if swaps cost 2.
  const std::vector<std::string> known = {"abxx", "abcd"};
  CHECK(nearest_name("abdc", known) == "abcd");
}

TEST_CASE("letter case is ignored") {
  const std::vector<std::string> known = {"bf16", "llama2-70b"};
  CHECK(nearest_name("LLAMA2-70B", known) == "llama2-70b");
}

TEST_CASE("the first of equally near names is suggested") {
  const std::vector<std::string> known = {"gpt3-13b", "gpt3-15b"};
  CHECK(nearest_name("gpt3-14b", known) == "gpt3-13b");
}

TEST_CASE("a word that resembles nothing gets no suggestion") {
  const std::vector<std::string> known = {"llama-7b", "tp", "gpt2"};
  CHECK(nearest_name("completely-different", known).empty());
  CHECK(nearest_name("xy", known).empty());  // two edits of two letters leave nothing in common
  CHECK(nearest_name("", known).empty());
  CHECK(nearest_name("llama", {}).empty());
  CHECK(did_you_mean("completely-different", known).empty());
}

TEST_CASE("a word of a megabyte gets no suggestion, quickly") {
  const std::vector<std::string> known = {"llama-7b"};
  CHECK(nearest_name(std::string(1 << 20, 'l'), known).empty());
}

TEST_CASE("the suggestion reads as a question") {
  const std::vector<std::string> known = {"llama-7b"};
  CHECK(did_you_mean("lama-7b", known) == "did you mean 'llama-7b'?");
}

TEST_CASE("the dashes of flags do not count as a resemblance") {
  const std::vector<std::string> known = {"--tp", "--dp", "--learning-rate", "--rank-order"};
  CHECK(nearest_name("--lr", known) == "--learning-rate");
  CHECK(nearest_name("--ro", known) == "--rank-order");
  CHECK(nearest_name("--xy", known).empty());
  CHECK(nearest_name("-tp", known) == "--tp");
  CHECK(nearest_name("--t", known) == "--tp");
}

TEST_CASE("common words and prefixes rank before small edit distances") {
  const std::vector<std::string> known = {"--steps",        "--batch-cost",      "--microbatch",
                                          "--global-batch", "--flash-attention", "--max-memory"};
  CHECK(nearest_name("--flash", known) == "--flash-attention");
  CHECK(nearest_name("--micro-batch-size", known) == "--microbatch");
  CHECK(nearest_name("--global-batch-size", known) == "--global-batch");
  CHECK(nearest_name("--memory", known) == "--max-memory");
  CHECK(nearest_name("--step", known) == "--steps");
}

// Every reader on the corpus and a fixed number of mutations of it: bounded and deterministic.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/fuzz/entries.hpp"
#include "tests/fuzz/mutate.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon::fuzz {
namespace {

namespace fs = std::filesystem;

/// The inputs of an entry, by name.
std::vector<std::string> corpus_of(const Entry& entry) {
  std::vector<fs::path> files;
  for (const std::string_view name : {entry.corpus, entry.more}) {
    const fs::path folder = fs::path(ECHELON_SOURCE_DIR) / name;
    if (name.empty() || !fs::exists(folder)) continue;
    for (const auto& file : fs::directory_iterator(folder)) files.push_back(file.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> texts;
  for (const fs::path& file : files) texts.push_back(slurp(file));
  return texts;
}

/// For a report: the bytes as a C string.
std::string quoted(const std::string& text) {
  std::string out;
  for (const char c : text.substr(0, 2000)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c >= ' ' && c <= '~')
      out += c;
    else
      out += "\\x" + std::string(1, "0123456789abcdef"[byte >> 4]) + "0123456789abcdef"[byte & 15];
  }
  return out;
}

TEST_CASE("every reader accepts its corpus") {
  for (const Entry& entry : entries()) {
    const std::vector<std::string> corpus = corpus_of(entry);
    CAPTURE(entry.name);
    CHECK(corpus.size() >= 3);
    for (const std::string& text : corpus) {
      INFO(quoted(text));
      CHECK(entry.run(text) == "");
    }
  }
}

TEST_CASE("every reader refuses changed inputs with a reason, or reads them stably") {
  constexpr int kChanges = 4000;
  for (const Entry& entry : entries()) {
    const std::vector<std::string> corpus = corpus_of(entry);
    REQUIRE_FALSE(corpus.empty());
    Numbers numbers(0x5eed);
    for (int i = 0; i < kChanges; ++i) {
      const std::string& base = corpus[numbers.below(corpus.size())];
      const std::string& other = corpus[numbers.below(corpus.size())];
      const std::string text = mutated(base, other, numbers);
      const std::string wrong = entry.run(text);
      if (wrong.empty()) continue;
      FAIL(std::string(entry.name) + ", change " + std::to_string(i) + ": " + wrong + "\n" +
           quoted(text));
    }
  }
}

TEST_CASE("mutations are the same on every machine") {
  Numbers numbers(1);
  std::string all;
  for (int i = 0; i < 20; ++i) all += mutated("{\"a\": 12, \"b\": [3, 4]}", "xyz", numbers) + "|";
  Numbers again(1);
  std::string second;
  for (int i = 0; i < 20; ++i) second += mutated("{\"a\": 12, \"b\": [3, 4]}", "xyz", again) + "|";
  CHECK(all == second);
  CHECK(Numbers(1).next() == 0x910a2dec89025cc1);
}

}  // namespace
}  // namespace echelon::fuzz

// Token files of every format, and refused files.
#include "runtime/io/data/tokens.hpp"

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "tests/places.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

template <class T>
std::string bytes_of_numbers(const std::vector<T>& values) {
  std::string raw(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(raw.data(), values.data(), raw.size());
  return raw;
}

std::string llmc_header(std::int32_t magic, std::int32_t version, std::int32_t count) {
  std::vector<std::int32_t> head(256);
  head[0] = magic;
  head[1] = version;
  head[2] = count;
  return bytes_of_numbers(head);
}

std::vector<std::int32_t> all_of(const TokenSource& source) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(source.count()));
  REQUIRE(source.read(0, source.count(), tokens.data()).ok());
  return tokens;
}

std::string refusal(const std::string& name, std::int64_t vocabulary = 50257) {
  const auto source = open_tokens(name, vocabulary);
  return source.ok() ? "" : source.error().message();
}

bool says(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

/// Data as Megatron writes them: documents of several sequences each.
struct Megatron {
  std::uint64_t version = 1;
  std::uint8_t code = 4;
  std::vector<std::int32_t> lengths{3, 2, 0, 4};
  std::vector<std::int64_t> places{0, 12, 20, 20};
  std::vector<std::int64_t> documents{0, 2, 4};
  std::string modes;

  [[nodiscard]] std::string text() const {
    std::string raw("MMIDIDX\0\0", 9);
    raw += bytes_of_numbers<std::uint64_t>({version});
    raw += static_cast<char>(code);
    raw += bytes_of_numbers<std::uint64_t>({lengths.size(), documents.size()});
    return raw + bytes_of_numbers(lengths) + bytes_of_numbers(places) +
           bytes_of_numbers(documents) + modes;
  }
};

template <class T>
void check_megatron_type(const TempDir& dir, std::uint8_t code) {
  Megatron index;
  index.code = code;
  index.places = {0, 3 * sizeof(T), 5 * sizeof(T), 5 * sizeof(T)};
  dir.write("m.idx", index.text());
  dir.write("m.bin", bytes_of_numbers<T>({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  for (const char* name : {"m", "m.bin", "m.idx"}) {
    const auto source = open_tokens(dir.path() / name, 100);
    REQUIRE(source.ok());
    CHECK(all_of(**source) == std::vector<std::int32_t>{1, 2, 3, 4, 5, 6, 7, 8, 9});
  }
}

TEST_CASE("llm.c's token files are read, 16 bits and 32") {
  const TempDir dir;
  const std::string small =
      dir.write("gpt2.bin", llmc_header(20240520, 1, 4) +
                                bytes_of_numbers<std::uint16_t>({50256, 0, 7, 40000}));
  const auto gpt2 = open_tokens(small, 50257);
  REQUIRE(gpt2.ok());
  CHECK(all_of(**gpt2) == std::vector<std::int32_t>{50256, 0, 7, 40000});
  std::int32_t middle = 0;
  REQUIRE((*gpt2)->read(2, 3, &middle).ok());
  CHECK(middle == 7);
  const std::string large = dir.write(
      "llama3.bin", llmc_header(20240801, 7, 2) + bytes_of_numbers<std::uint32_t>({128000, 5}));
  const auto llama = open_tokens(large, 128256);
  REQUIRE(llama.ok());
  CHECK(all_of(**llama) == std::vector<std::int32_t>{128000, 5});
}

TEST_CASE("llm.c's token files with another version or length are refused") {
  const TempDir dir;
  const std::string two = bytes_of_numbers<std::uint16_t>({1, 2});
  CHECK(says(refusal(dir.write("v.bin", llmc_header(20240520, 2, 2) + two)), "expected version 1"));
  CHECK(says(refusal(dir.write("l.bin", llmc_header(20240520, 1, 3) + two)),
             "expected 1030 bytes for the 3 tokens of its header"));
  CHECK(
      says(refusal(dir.write("n.bin", llmc_header(20240520, 1, -1) + two)), "cut off or damaged"));
  CHECK(says(refusal(dir.write("x.bin", llmc_header(77, 1, 2) + two)), "not a token file"));
}

TEST_CASE("Megatron's data are read with every integer type, documents concatenated") {
  const TempDir dir;
  check_megatron_type<std::uint8_t>(dir, 1);
  check_megatron_type<std::int8_t>(dir, 2);
  check_megatron_type<std::int16_t>(dir, 3);
  check_megatron_type<std::int32_t>(dir, 4);
  check_megatron_type<std::int64_t>(dir, 5);
  check_megatron_type<std::uint16_t>(dir, 8);
}

TEST_CASE("a Megatron index that contradicts itself or its data is refused") {
  const TempDir dir;
  dir.write("m.bin", bytes_of_numbers<std::int32_t>({1, 2, 3, 4, 5, 6, 7, 8, 9}));
  const auto with = [&](const auto& change) {
    Megatron index;
    change(index);
    dir.write("m.idx", index.text());
    return refusal(dir.path() / "m");
  };
  CHECK(with([](Megatron&) {}) == "");
  CHECK(with([](Megatron& m) { m.modes = std::string(4, '\0'); }) == "");
  CHECK(says(with([](Megatron& m) { m.version = 2; }), "version 2 of the index"));
  CHECK(says(with([](Megatron& m) { m.code = 7; }), "tokens of type 7; expected integers"));
  CHECK(says(with([](Megatron& m) { m.lengths[1] = 3; }), "expected byte 24"));
  CHECK(says(with([](Megatron& m) { m.lengths[3] = 5; }), "at most the 4 that are left"));
  CHECK(says(with([](Megatron& m) { m.lengths[3] = 3; }), "36 bytes; expected 8 tokens"));
  CHECK(says(with([](Megatron& m) { m.lengths[3] = -1; }), "sequence 3 has -1 tokens"));
  CHECK(says(with([](Megatron& m) { m.documents = {0, 5}; }), "document 1 begins at sequence 5"));
  CHECK(says(with([](Megatron& m) { m.documents = {3, 2}; }), "document 1 begins at sequence 2"));
  CHECK(says(with([](Megatron& m) { m.modes = "x"; }), "an index as long as its header says"));
  const std::string whole = Megatron{}.text();
  for (std::size_t length = 0; length < whole.size(); ++length) {
    dir.write("m.idx", whole.substr(0, length));
    CHECK_FALSE(refusal(dir.path() / "m").empty());
  }
}

TEST_CASE("text is read as its bytes") {
  const TempDir dir;
  const std::string file = dir.write("a.txt", "Az\n\xc3\xa9");
  const auto source = open_tokens(file, 256);
  REQUIRE(source.ok());
  CHECK(all_of(**source) == std::vector<std::int32_t>{65, 122, 10, 0xc3, 0xa9});
  CHECK(says(refusal(file, 100), "a model with at least 256 tokens"));
  CHECK(says(refusal(dir.write("empty.txt", "")), "the file is empty"));
  CHECK(says(refusal(dir.path() / "missing.txt"), "no such file"));
  CHECK(says(refusal(dir.path()), "is a directory"));
}

TEST_CASE("files in other text formats are refused by name, not read as bytes") {
  using namespace std::string_literals;
  const TempDir dir;
  const std::string line = "{\"text\": \"It is a truth\", \"id\": 1}\n";
  const std::string reported = refusal(dir.write("a.jsonl", line + line));
  CHECK(says(reported, "a.jsonl: JSON lines; expected plain text, llm.c's .bin"));
  CHECK(says(reported, "jq -r .text FILE > data.txt"));
  CHECK(says(refusal(dir.write("a.txt", line)), "JSON lines"));  // whatever its name
  CHECK(says(refusal(dir.write("b.txt", "\xef\xbb\xbf\n" + line)), "JSON lines"));
  const std::string long_line = "{\"text\": \"" + std::string(100'000, 'a') + "\"}\n";
  CHECK(says(refusal(dir.write("long.txt", long_line)), "JSON lines"));
  CHECK(says(refusal(dir.write("a.json", "[\n  {\"text\": \"a\"}\n]")), "a.json: JSON;"));
  struct Case {
    std::string bytes, name;
  };
  for (const Case& each :
       {Case{"PAR1\x15\x04", "a Parquet file"}, Case{"ARROW1\0\0"s, "an Arrow file"},
        Case{"\xff\xff\xff\xff\x10", "an Arrow stream"}, Case{"\x1f\x8b\x08", "a gzip archive"},
        Case{"\x28\xb5\x2f\xfd", "a Zstandard archive"}, Case{"PK\x03\x04", "a zip archive"},
        Case{"\xfd"
             "7zXZ\0"s,
             "an xz archive"},
        Case{"BZh91AY", "a bzip2 archive"}, Case{"\x89HDF\r\n\x1a\n", "an HDF5 file"},
        Case{"\x93NUMPY\x01", "a NumPy file"}}) {
    CHECK(says(refusal(dir.write("data", each.bytes + "rest")), "data: " + each.name));
  }
  // Text may begin with a brace.
  for (const char* text : {"{ a poem }\n", "{\"a\": 1} and more\n", "{", "PAR 1", "[1] A note\n"}) {
    INFO(text);
    CHECK(open_tokens(dir.write("brace.txt", text), 256).ok());
  }
}

TEST_CASE("a token outside the vocabulary is an error that names file and position") {
  const TempDir dir;
  const std::string file =
      dir.write("t.bin", llmc_header(20240801, 7, 4) +
                             bytes_of_numbers<std::uint32_t>({1, 2, 4000000000, 3}));
  const auto source = open_tokens(file, 50257);
  REQUIRE(source.ok());
  std::array<std::int32_t, 3> tokens{};
  CHECK((*source)->read(0, 2, tokens.data()).ok());
  const Status read = (*source)->read(1, 4, tokens.data());
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().message() ==
        file +
            ": the token at position 2 is 4000000000; expected ids of the model's vocabulary, 0 "
            "to 50256; the data were made with another tokenizer");
}

TEST_CASE(
    "synthetic tokens are independent of the blocks read, and each follows from the one before") {
  const auto source = open_tokens("synthetic:1000", 50257);
  REQUIRE(source.ok());
  const std::vector<std::int32_t> all = all_of(**source);
  REQUIRE(all.size() == 1000);
  std::array<std::int32_t, 37> part{};
  REQUIRE((*source)->read(301, 338, part.data()).ok());
  CHECK(std::equal(part.begin(), part.end(), all.begin() + 301));
  // Where the same token comes twice inside phrases, the same follows.
  std::array<int, 256> after{};
  after.fill(-1);
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    if (i % 16 == 15) continue;
    int& known = after.at(static_cast<std::size_t>(all[i]));
    CHECK((known == -1 || known == all[i + 1]));
    known = all[i + 1];
  }
  for (const std::int32_t token : all_of(**open_tokens("synthetic:100", 5))) CHECK(token < 5);
  CHECK(says(refusal("synthetic:-3"), "a positive whole number"));
}

TEST_CASE("the text in examples matches its description") {
  const auto source =
      open_tokens(std::string(ECHELON_SOURCE_DIR) + "/examples/pride-and-prejudice.txt", 256);
  REQUIRE(source.ok());
  CHECK((*source)->count() == 125424);
  for (const std::int32_t byte : all_of(**source)) CHECK(byte < 128);
}

}  // namespace
}  // namespace echelon

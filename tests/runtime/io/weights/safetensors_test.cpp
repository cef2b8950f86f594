// safetensors: written files are read back, conversions are exact, and ambiguous files are refused.
#include "runtime/io/weights/safetensors.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/catch.hpp"
#include "tests/support/numbers.hpp"
#include "tests/support/temp_dir.hpp"

namespace echelon {
namespace {

std::string with_length(std::string json) {
  const std::uint64_t length = json.size();
  std::string head(8, '\0');
  std::memcpy(head.data(), &length, 8);
  return head + json;
}

/// The reason for refusing a file with this header and this many bytes of data.
std::string header_refusal(const std::string& json, std::int64_t data_bytes) {
  const std::string head = with_length(json);
  const auto header =
      parse_safetensors(head, static_cast<std::int64_t>(head.size()) + data_bytes, "f");
  return header.ok() ? "" : header.error().message();
}

bool tells(const std::string& text, const std::string& part) {
  INFO(text);
  return text.find(part) != std::string::npos;
}

template <class T>
std::string raw_bytes(const std::vector<T>& values) {
  std::string raw(values.size() * sizeof(T), '\0');
  std::memcpy(raw.data(), values.data(), raw.size());
  return raw;
}

/// One tensor "x" read as floats.
template <class To>
std::vector<To> read_as(const TempDir& dir, TensorType type, const std::string& data,
                        Element element) {
  SafetensorsHeader header;
  const auto count = static_cast<std::int64_t>(data.size()) / bytes_of(type);
  header.tensors.push_back({"x", type, {count}});
  const std::string head = place_safetensors(header);
  const auto file = SafetensorsFile::open(dir.write("x.safetensors", head + data));
  REQUIRE(file.ok());
  std::vector<To> out(static_cast<std::size_t>(count));
  REQUIRE(file->read(*file->find("x"), 0, count, out.data(), element).ok());
  return out;
}

TEST_CASE("tensors are placed by size of type and name, aligned, behind a padded header") {
  SafetensorsHeader header;
  header.metadata["format"] = "pt";
  header.tensors = {{"b", TensorType::bf16, {3}},
                    {"a", TensorType::bf16, {1, 2}},
                    {"z", TensorType::f64, {1}},
                    {"s", TensorType::f32, {}}};
  const std::string head = place_safetensors(header);
  CHECK(head.size() % 8 == 0);
  CHECK(head.substr(8) == R"({"__metadata__":{"format":"pt"},)"
                          R"("z":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},)"
                          R"("s":{"dtype":"F32","shape":[],"data_offsets":[8,12]},)"
                          R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[12,16]},)"
                          R"("b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]}}    )");
  const auto reread = parse_safetensors(head, static_cast<std::int64_t>(head.size()) + 22, "again");
  REQUIRE(reread.ok());
  CHECK(reread->tensors == header.tensors);
  CHECK(reread->metadata == header.metadata);
  CHECK(reread->data == static_cast<std::int64_t>(head.size()));
}

TEST_CASE("headers with gaps, overlaps, duplicates or wrong lengths are refused") {
  const auto one = [](const std::string& offsets, const std::string& shape = "[2]") {
    return R"({"a":{"dtype":"F32","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
  };
  CHECK(header_refusal(one("[0,8]") + "}", 8) == "");
  CHECK(header_refusal("{}", 0) == "");
  CHECK(tells(header_refusal(one("[0,8]") + "}", 12), "expected 8 bytes, as the header says"));
  CHECK(tells(header_refusal(one("[0,8]") + "}", 7), "within the 7 bytes"));
  CHECK(
      tells(header_refusal(one("[4,12]") + "}", 12), "f at /a: begins at byte 4; expected byte 0"));
  const std::string more = R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":)";
  CHECK(tells(header_refusal(one("[0,8]") + more + "[4,8]}}", 8), "no gaps and no overlaps"));
  CHECK(tells(header_refusal(one("[0,8]") + more + "[9,13]}}", 13), "no gaps and no overlaps"));
  CHECK(tells(header_refusal(one("[0,8]") + "," + one("[8,16]").substr(1) + "}", 16),
              "'a' appears twice"));
  CHECK(tells(header_refusal(one("[8,0]") + "}", 8), "bytes 8 to 0"));
  CHECK(tells(header_refusal(one("[0,8]", "[3]") + "}", 8), "[3] of F32 in 8 bytes"));
  CHECK(tells(header_refusal(one("[0,8]", "[9223372036854775807,4]") + "}", 8), "/a/shape"));
  CHECK(tells(header_refusal(one("[0,8]", "[-2]") + "}", 8), "whole numbers, 0 or more"));
  CHECK(tells(header_refusal(one("[0]") + "}", 8), "expected begin and end"));
  CHECK(
      tells(header_refusal(R"({"a":{"dtype":"F33","shape":[],"data_offsets":[0,4]}})", 4), "F33"));
  CHECK(tells(header_refusal(R"({"a":{"dtype":"F32","shape":[],"offsets":[0,4]}})", 4),
              "data_offsets"));
  CHECK(tells(header_refusal(R"({"__metadata__":{"n":1}})", 0), "a value that is no text"));
  CHECK(tells(header_refusal(" {}", 0), "does not begin with {"));
  CHECK(tells(header_refusal("[]", 0), "does not begin with {"));
  CHECK(tells(header_refusal("{", 0), "2 to "));
}

TEST_CASE("a file truncated anywhere is refused") {
  const TempDir dir;
  SafetensorsHeader header;
  header.tensors = {{"a", TensorType::f32, {2, 2}}};
  const std::string whole = place_safetensors(header) + std::string(16, 'x');
  CHECK(SafetensorsFile::open(dir.write("a", whole)).ok());
  for (std::size_t length = 0; length < whole.size(); ++length) {
    CHECK_FALSE(SafetensorsFile::open(dir.write("a", whole.substr(0, length))).ok());
  }
  CHECK_FALSE(SafetensorsFile::open(dir.write("a", whole + "x")).ok());
}

TEST_CASE("every 16-bit number is converted to the equal float") {
  const TempDir dir;
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const auto halves = read_as<float>(dir, TensorType::f16, raw_bytes(all), Element::f32);
  const auto brains = read_as<double>(dir, TensorType::bf16, raw_bytes(all), Element::f64);
  int wrong = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool negative = (i & 0x8000U) != 0;
    const int exponent = static_cast<int>(i >> 10U) & 31;
    const int fraction = static_cast<int>(i & 1023U);
    double value =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) value = fraction == 0 ? std::numeric_limits<double>::infinity() : NAN;
    if (negative) value = -value;
    const auto half = static_cast<double>(halves[i]);
    wrong +=
        !(std::isnan(value) ? std::isnan(half) : half == value && std::signbit(half) == negative);
    Bfloat16 brain;
    brain.bits = all[i];
    const auto same = static_cast<double>(static_cast<float>(brain));
    wrong += !(std::isnan(same) ? std::isnan(brains[i]) : brains[i] == same);
  }
  CHECK(wrong == 0);
}

TEST_CASE("doubles become bf16 in one rounding, not two") {
  const TempDir dir;
  // 1 + 2⁻⁸ is halfway between two bf16; a double a little above it must go up, though as a float
  // it lies on the middle, from where it would go to even, down.
  const std::vector<double> values{1 + 0x1p-8 + 0x1p-40,
                                   1 + 0x1p-8 - 0x1p-40,
                                   1 + 0x1p-8,
                                   -(1 + 0x1p-8 + 0x1p-40),
                                   1e300,
                                   0x1p-149,
                                   3.0};
  const auto out = read_as<Bfloat16>(dir, TensorType::f64, raw_bytes(values), Element::bf16);
  const auto value = [&](std::size_t i) { return static_cast<double>(static_cast<float>(out[i])); };
  CHECK(value(0) == 1 + 0x1p-7);
  CHECK(value(1) == 1);
  CHECK(value(2) == 1);
  CHECK(value(3) == -(1 + 0x1p-7));
  CHECK(std::isinf(value(4)));
  CHECK(value(5) == 0);
  CHECK(value(6) == 3);
}

TEST_CASE("any part of a tensor can be read, across blocks or within one, but not integers") {
  const TempDir dir;
  std::vector<float> values(200'000);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  SafetensorsHeader header;
  header.tensors = {{"x", TensorType::f32, {200'000}}, {"n", TensorType::i64, {1}}};
  const std::string head = place_safetensors(header);
  const auto file =
      SafetensorsFile::open(dir.write("x", head + std::string(8, '\0') + raw_bytes(values)));
  REQUIRE(file.ok());
  std::vector<double> part(150'001);
  REQUIRE(file->read(*file->find("x"), 40'000, 150'001, part.data(), Element::f64).ok());
  CHECK(part.front() == 40'000);
  CHECK(part.back() == 190'000);
  const Status integers = file->read(*file->find("n"), 0, 1, part.data(), Element::f32);
  REQUIRE_FALSE(integers.ok());
  CHECK(tells(integers.error().message(), "n is I64; expected F64, F32, F16 or BF16"));
}

TEST_CASE("a model in several files is read by its index, which must be right") {
  const TempDir dir;
  const auto file = [&](const std::string& name, const std::vector<std::string>& tensors) {
    SafetensorsHeader header;
    for (const std::string& tensor : tensors)
      header.tensors.push_back({tensor, TensorType::f32, {1}});
    const std::string head = place_safetensors(header);
    dir.write(name, head + std::string(4 * tensors.size(), '\0'));
  };
  const auto index = [&](const std::string& map) {
    dir.write("model.safetensors.index.json",
              R"({"metadata":{"total_size":12},"weight_map":{)" + map + "}}");
    const auto files = TensorFiles::open(dir.path());
    return files.ok() ? std::to_string(files->tensors().size()) : files.error().message();
  };
  CHECK(
      tells(TensorFiles::open(dir.path()).error().message(), "model.safetensors: cannot be read"));
  file("1.safetensors", {"a", "b"});
  file("2.safetensors", {"c"});
  const std::string first = R"("a":"1.safetensors","b":"1.safetensors")";
  CHECK(index(first + R"(,"c":"2.safetensors")") == "3");
  CHECK(tells(index(first + R"(,"d":"2.safetensors")"), "holds the tensor c"));
  CHECK(tells(index(first + R"(,"c":"2.safetensors","d":"2.safetensors")"), "tensor d is missing"));
  CHECK(tells(index(first + R"(,"c":"3.safetensors")"), "3.safetensors: cannot be read"));
  CHECK(tells(index(first + R"(,"c":"../2.safetensors")"), "no name of a file"));
}

}  // namespace
}  // namespace echelon

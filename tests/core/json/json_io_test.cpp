#include "core/json/json_io.hpp"

#include <chrono>
#include <cmath>
#include <limits>
#include <string>

#include "core/json/python_json_io.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;

namespace {

std::string error_of(std::string_view text) {
  const Result<Json> document = parse_json(text, "a.json");
  REQUIRE_FALSE(document.ok());
  CHECK(document.error().kind == Error::Kind::input);
  return document.error().message();
}

Json parsed(std::string_view text) { return parse_json(text, "a.json").value(); }

std::string repeated(std::string_view piece, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += piece;
  return text;
}

}  // namespace

TEST_CASE("a document keeps its values and the order of its keys") {
  const Json document =
      parsed(R"({"z": 1, "a": [true, null, -2, 1.5, "x\u00e9"], "m": {"k": {}}})");
  CHECK(document.dump() == R"({"z":1,"a":[true,null,-2,1.5,"xé"],"m":{"k":{}}})");
}

TEST_CASE("a byte order mark before the document is allowed") {
  CHECK(parsed("\xEF\xBB\xBF{\"a\": 1}").at("a") == 1);
}

TEST_CASE("a truncated document is reported with line and column") {
  for (const char* text : {"{", "{\n \"a\": [1,", "{\"a\"", "[1, 2", "\"abc", "{\"a\": tru"}) {
    INFO(text);
    CHECK_FALSE(parse_json(text, "a.json").ok());
  }
  CHECK(mentions(error_of("{\n \"a\": [1,"), "a.json, line 2, column"));
  CHECK(mentions(error_of("{\n \"a\": [1,"), "ends too early"));
}

TEST_CASE("an empty document is reported as empty") {
  CHECK(mentions(error_of(""), "empty"));
  CHECK(mentions(error_of(" \n\t"), "empty"));
  CHECK(mentions(error_of("\xEF\xBB\xBF"), "empty"));
}

TEST_CASE("invalid JSON is refused with its position") {
  CHECK(mentions(error_of("{\n  \"a\": 1,\n  b: 2\n}"), "line 3, column 3"));
  CHECK(mentions(error_of("{\"a\": 1} x"), "line 1, column 10"));
  for (const char* text : {"nan", "{\"a\": NaN}", "{\"a\": Infinity}", "{\"a\": 0x10}", "{'a': 1}",
                           "{\"a\": 1,}", "[1, 2,]", "{\"a\": 01}", "{\"a\": .5}", "// c\n{}",
                           "{\"a\": \"\\x\"}", "{\"a\": \"\\ud800\"}", "{} {}", "layers: 32"}) {
    INFO(text);
    CHECK_FALSE(parse_json(text, "a.json").ok());
  }
}

TEST_CASE("numbers that Python writes and JSON has not are read where the file may be Python's") {
  const auto number = [](std::string_view text) {
    return parse_python_json(text, "a.json").value().at("a").back().get<double>();
  };
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  CHECK(number(R"({"a": [0.0, Infinity]})") == kInfinite);
  CHECK(number(R"({"a": [-Infinity], "b": 1})") == -kInfinite);
  CHECK(std::isnan(number(R"({"a":[NaN]})")));
  CHECK(number(R"({"a": [{"__float__": "Infinity"}]})") == kInfinite);
  CHECK(number(R"({"a": [{"__float__": "-Infinity"}]})") == -kInfinite);
  CHECK(parse_python_json("Infinity", "a.json").value() == kInfinite);
  // Strings, other tagged values and ordinary numbers are what they are.
  const char* untouched =
      R"({"Infinity":"NaN, -Infinity \" Infinity","b":{"__float__":"x"},"c":[0.0,0.0,-0.0]})";
  CHECK(parse_python_json(untouched, "a.json").value().dump() == untouched);
  CHECK(parse_python_json("[0e0, 0e000000]", "a.json").value().dump() == "[0.0,0.0]");
}

TEST_CASE("errors in a file with Python's numbers have its positions and words") {
  const auto error = [](std::string_view text) {
    return parse_python_json(text, "a.json").error().message();
  };
  CHECK(mentions(error("{\"a\": NaN,\n \"b\": [Infinity, -Infinity], c: 1}"), "line 2, column 30"));
  CHECK(mentions(error("{\"a\": NaN, \"a\": 1}"), "line 1, column 14"));
  CHECK(mentions(error("[NaN, -Infinity, c]"), "last read: '-Infinity, c'"));
  for (const char* text : {"[--Infinity]", "[+Infinity]", "[-NaN]", "[1Infinity]", "[Infinity1]",
                           "[Infinityx]", "[NaN.]", "[infinity]", "[nan]", "[-Infinit"}) {
    INFO(text);
    CHECK_FALSE(parse_python_json(text, "a.json").ok());
  }
}

TEST_CASE("a number that is not finite is named where it is read") {
  const Json document =
      parse_python_json(R"({"n": Infinity, "d": NaN, "b": -Infinity})", "a.json").value();
  const auto found = [&](auto read) {
    JsonReader reader(document, "a.json");
    reader.ignore_rest();
    read(reader);
    return reader.finish().error().found;
  };
  CHECK(found([](JsonReader& reader) { reader.integer("n", 1, 9); }) == "Infinity");
  CHECK(found([](JsonReader& reader) { reader.number("d", 0); }) == "NaN");
  CHECK(found([](JsonReader& reader) { reader.boolean("b"); }) == "-Infinity");
}

TEST_CASE("a number too large for any type is refused, not made infinite") {
  CHECK(mentions(error_of("{\"a\": 1e999}"), "number overflow"));
  CHECK(mentions(error_of("{\"a\": -1e999}"), "number overflow"));
}

TEST_CASE("a duplicate key in one object is refused with its position") {
  const std::string message = error_of("{\n  \"layers\": 1,\n  \"layers\": 2\n}");
  CHECK(mentions(message, "line 3, column 10"));
  CHECK(mentions(message, "'layers' appears twice"));
  CHECK(mentions(error_of("[{\"b\": {\"a\": 1, \"\\u0061\": 2}}]"), "'a' appears twice"));
}

TEST_CASE("the same key in different objects is not a duplicate") {
  CHECK(parse_json(R"({"a": {"a": 1}, "b": [{"a": 1}, {"a": 2}]})", "a.json").ok());
}

TEST_CASE("64 levels are read and 65 are refused") {
  CHECK(parse_json(repeated("[", 64) + repeated("]", 64), "a.json").ok());
  CHECK(mentions(error_of(repeated("[", 65) + repeated("]", 65)), "deeper than 64"));
  CHECK(mentions(error_of(repeated("{\"a\":", 65) + "1" + repeated("}", 65)), "deeper than 64"));
}

TEST_CASE("a million levels do not use stack") {
  CHECK(mentions(error_of(std::string(1'000'000, '[')), "deeper than 64"));
  CHECK(mentions(error_of(repeated("{\"a\":", 1'000'000)), "deeper than 64"));
}

TEST_CASE("bytes that are not UTF-8 are refused with their position") {
  CHECK(mentions(error_of("{\"a\":\n \"\xff\"}"), "line 2, column 3"));
  for (const char* bytes : {"\xff", "\xc0\xaf", "\xe0\x80\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80",
                            "\xf5\x80\x80\x80", "\xe2\x82", "\x80", "\xc3"}) {
    const std::string text = std::string("{\"a\": \"") + bytes + "\"}";
    CHECK(mentions(error_of(text), "not UTF-8"));
  }
  const std::string utf16("\xff\xfe{\0}\0", 6);
  CHECK(mentions(error_of(utf16), "not UTF-8"));
}

TEST_CASE("well-formed UTF-8 of every length is read") {
  CHECK(
      parsed("[\"\xc2\xa2 \xe2\x82\xac \xed\x9f\xbf \xf0\x9f\x98\x80 \xf4\x8f\xbf\xbf\"]").size() ==
      1);
}

TEST_CASE("content after a NUL byte is refused") {
  CHECK_FALSE(parse_json(std::string_view("{}\0garbage", 10), "a.json").ok());
}

TEST_CASE("a document longer than 64 MiB is refused before it is parsed") {
  const std::string text = "[" + std::string((std::size_t{64} << 20), ' ') + "]";
  CHECK(mentions(error_of(text), "too long"));
}

TEST_CASE("an object of many keys is read in linear time") {
  std::string text = "{";
  for (int i = 0; i < 200'000; ++i) text += "\"" + std::to_string(i) + "\":0,";
  text += "\"end\":0}";
  const auto begin = std::chrono::steady_clock::now();
  CHECK(parsed(text).size() == 200'001);
  const auto took = std::chrono::steady_clock::now() - begin;
  CHECK(took < std::chrono::seconds(20));  // comparing every pair of keys takes minutes
}

// --- JsonReader ---

TEST_CASE("a reader returns typed values") {
  const Json document = parsed(R"({"n": 3, "big": 9007199254740993, "whole": 1e3, "x": 0.5,
                                   "b": true, "s": "hi", "none": null})");
  JsonReader reader(document, "a.json");
  CHECK(reader.integer("n", 0, 10) == 3);
  CHECK(reader.integer("big", 0, INT64_MAX) == 9007199254740993);
  CHECK(reader.integer("whole", 0, 10000) == 1000);
  CHECK(reader.number("x", 0, 1) == 0.5);
  CHECK(reader.boolean("b"));
  CHECK(reader.string("s") == "hi");
  CHECK(reader.integer_or("none", 0, 10, 7) == 7);
  CHECK(reader.number_or("absent", 0, 1, 0.25) == 0.25);
  CHECK(reader.boolean_or("absent", true));
  CHECK(reader.string_or("absent", "x") == "x");
  CHECK(reader.has("n"));
  CHECK_FALSE(reader.has("none"));
  CHECK_FALSE(reader.has("absent"));
  CHECK(reader.finish().ok());
}

TEST_CASE("the first error is kept, with its JSON pointer") {
  const Json document = parsed(R"({"a": "x", "b": "y"})");
  JsonReader reader(document, "a.json", "/node/0");
  CHECK(reader.integer("a", 1, 5) == 1);  // harmless
  CHECK_FALSE(reader.boolean("b"));
  CHECK(reader.failed());
  const Status status = reader.finish();
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().message() ==
        "a.json at /node/0/a: the string \"x\"; expected a whole number between 1 and 5");
}

TEST_CASE("a JSON pointer escapes its separators") {
  const Json document = parsed("{}");
  CHECK(JsonReader(document, "f").pointer_to("a/b~c") == "f at /a~1b~0c");
}

TEST_CASE("a value of another type or out of bounds is refused") {
  const Json document = parsed(R"({"s": "3", "half": 1.5, "neg": -1, "huge": 1e300,
      "more": 99999999999999999999999, "u64": 18446744073709551615, "list": [], "bool": true})");
  const auto refused = [&](const char* key) {
    JsonReader reader(document, "a.json");
    reader.ignore_rest();
    reader.integer(key, 0, INT64_MAX);
    return !reader.finish().ok();
  };
  for (const char* key : {"s", "half", "neg", "huge", "more", "u64", "list", "bool", "absent"}) {
    INFO(key);
    CHECK(refused(key));
  }
  JsonReader reader(document, "a.json");
  reader.number("huge", 0, 1e299);
  CHECK_FALSE(reader.finish().ok());
  JsonReader below(document, "a.json");
  below.number("neg", 0, 1);
  CHECK(
      mentions(below.finish().error().message(), "a.json at /neg: -1; expected a number between"));
}

TEST_CASE("an optional value of the wrong type is still an error") {
  const Json document = parsed(R"({"n": "x"})");
  JsonReader reader(document, "a.json");
  reader.integer_or("n", 0, 10, 5);
  CHECK_FALSE(reader.finish().ok());
}

TEST_CASE("an unread key is an error that names the nearest") {
  const Json document = parsed(R"({"layers": 2, "hiden": 4})");
  JsonReader reader(document, "a.json");
  reader.integer("layers", 1, 10);
  reader.integer_or("hidden", 1, 10, 1);
  const Status status = reader.finish();
  REQUIRE_FALSE(status.ok());
  CHECK(status.error().message() ==
        "a.json at /hiden: unknown key 'hiden'; did you mean 'hidden'?");
}

TEST_CASE("an unread key is not called a misspelling of a key that is there") {
  const Json document = parsed(R"({"nic_link": 2, "socket_link": 4})");
  JsonReader reader(document, "a.json");
  reader.integer("nic_link", 1, 10);
  CHECK(reader.finish().error().message() == "a.json at /socket_link: unknown key 'socket_link'");
}

TEST_CASE("a reader knows which keys it asked for in vain") {
  const Json document = parsed(R"({"layers": 2, "width": null})");
  JsonReader reader(document, "a.json");
  reader.integer_or("layers", 1, 10, 1);
  reader.integer_or("width", 1, 10, 1);
  reader.integer_or("heads", 1, 10, 1);
  CHECK_FALSE(reader.lacks("layers"));
  CHECK(reader.lacks("width"));
  CHECK(reader.lacks("heads"));
  reader.ignore({"bias"});
  CHECK_FALSE(reader.lacks("bias"));
  CHECK_FALSE(reader.lacks("experts"));
}

TEST_CASE("the error for a missing key names the misspelt one") {
  const Json document = parsed(R"({"layers": 2, "hiden": 4})");
  JsonReader reader(document, "a.json");
  reader.integer("layers", 1, 10);
  reader.integer("hidden", 1, 10);
  const Status status = reader.finish();
  REQUIRE_FALSE(status.ok());
  CHECK(mentions(status.error().message(), "the key 'hidden' is missing"));
  CHECK(mentions(status.error().message(), "there is 'hiden'; did you mean 'hidden'?"));
}

TEST_CASE("ignored keys count as known") {
  const Json document = parsed(R"({"a": 1, "b": 2})");
  JsonReader some(document, "a.json");
  some.ignore({"a", "b"});
  CHECK(some.finish().ok());
  JsonReader all(document, "a.json");
  all.ignore_rest();
  CHECK(all.finish().ok());
  JsonReader none(document, "a.json");
  CHECK_FALSE(none.finish().ok());
}

TEST_CASE("a choice outside the list names the nearest") {
  const Json document = parsed(R"({"a": "gelu", "b": "sillu", "c": 3})");
  JsonReader reader(document, "a.json");
  CHECK(reader.choice("a", {"silu", "gelu"}) == "gelu");
  CHECK(reader.choice("b", {"silu", "gelu"}) == "silu");
  CHECK(mentions(reader.finish().error().message(), "did you mean 'silu'?"));
  JsonReader typed(document, "a.json");
  typed.choice("c", {"silu"});
  CHECK(mentions(typed.finish().error().message(), "one of silu"));
}

TEST_CASE("a value that is not an object is refused for any access") {
  const Json document = parsed("[1, 2]");
  JsonReader reader(document, "a.json", "/links");
  CHECK(reader.integer("n", 1, 2) == 1);
  CHECK(reader.member("n") == nullptr);
  CHECK_FALSE(reader.has("n"));
  CHECK(reader.finish().error().message() == "a.json at /links: a list; expected a JSON object");
}

TEST_CASE("text from a file is shortened and sanitized before display") {
  Json document;
  document["key\x1b[31m" + std::string(500, 'k')] = 1;
  document["value"] = "\x1b[31m" + std::string(500, 'v');
  JsonReader reader(document, "a.json");
  reader.integer("value", 0, 1);
  const std::string value = reader.finish().error().message();
  CHECK(value.find('\x1b') == std::string::npos);
  CHECK(value.size() < 200);
  JsonReader unknown(document, "a.json");
  unknown.ignore({"value"});
  const std::string key = unknown.finish().error().message();
  CHECK(key.find('\x1b') == std::string::npos);
  CHECK(key.size() < 300);
}

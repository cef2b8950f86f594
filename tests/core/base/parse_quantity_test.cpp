#include "core/base/parse_quantity.hpp"

#include <cstdint>
#include <limits>
#include <string>

#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

using namespace echelon;
using echelon::test::mentions;

namespace {

constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

std::int64_t count_of(const std::string& text) {
  const Result<std::int64_t> value = parse_count(text, "--flag", 0);
  INFO(text << ": " << (value ? "ok" : value.error().message()));
  REQUIRE(value.ok());
  return *value;
}

template <class T>
std::string error_of(const Result<T>& result) {
  REQUIRE_FALSE(result.ok());
  CHECK(result.error().kind == Error::Kind::input);
  CHECK(result.error().where == "--flag");
  return result.error().message();
}

}  // namespace

TEST_CASE("counts are read as users write them") {
  CHECK(count_of("64") == 64);
  CHECK(count_of("0") == 0);
  CHECK(count_of("007") == 7);
  CHECK(count_of("64k") == 64'000);
  CHECK(count_of("64K") == 64'000);
  CHECK(count_of("3M") == 3'000'000);
  CHECK(count_of("7b") == 7'000'000'000);
  CHECK(count_of("7B") == 7'000'000'000);
  CHECK(count_of("2G") == 2'000'000'000);
  CHECK(count_of("1.4T") == 1'400'000'000'000);
  CHECK(count_of("4Ki") == 4096);
  CHECK(count_of("4Mi") == 4'194'304);
  CHECK(count_of("1e12") == 1'000'000'000'000);
  CHECK(count_of("1.5e3") == 1500);
  CHECK(count_of("12e-1k") == 1200);
  CHECK(count_of("0e999999999999") == 0);
}

TEST_CASE("a suffix may make a fraction whole") {
  CHECK(count_of("1.5k") == 1500);
  CHECK(count_of("1.5Ki") == 1536);
  CHECK(count_of("0.5Ki") == 512);
  CHECK(count_of("1.0") == 1);
  CHECK(count_of("1.000000000001T") == 1'000'000'000'001);
}

TEST_CASE("no digit of a large count is lost") {
  CHECK(count_of("9007199254740993") == 9'007'199'254'740'993);  // 2^53 + 1: not a double
  CHECK(count_of("9223372036854775807") == kMaxInt64);
}

TEST_CASE("anything but a whole number is refused") {
  const auto text = GENERATE(as<std::string>{}, "", "abc", "nan", "inf", "-inf", "0x10", "12x",
                             "1 2", "--3", "1.2.3", "e5", ".", "-", "k", "1e", "1,000", "64 ",
                             " 64", "7bb", "4Kib", "1_000", "٣");
  INFO("'" << text << "'");
  CHECK_FALSE(parse_count(text, "--flag").ok());
}

TEST_CASE("an error gives the reason") {
  CHECK(mentions(error_of(parse_count("", "--flag")), "nothing"));
  CHECK(mentions(error_of(parse_count("abc", "--flag")), "'abc' is not a number"));
  CHECK(mentions(error_of(parse_count("1.5", "--flag")), "'1.5' is not whole"));
  CHECK(mentions(error_of(parse_count("1e-30", "--flag")), "is not whole"));
  CHECK(mentions(error_of(parse_count("-3", "--flag")), "'-3' is below 1"));
  CHECK(mentions(error_of(parse_count("0", "--flag")), "'0' is below 1"));
  CHECK(mentions(error_of(parse_count("9223372036854775808", "--flag")), "is too large"));
  CHECK(mentions(error_of(parse_count("1e30", "--flag")), "is too large"));
  CHECK(mentions(error_of(parse_count("99999999999999999999999", "--flag")), "is too large"));
  CHECK(mentions(error_of(parse_count("9e18Ki", "--flag")), "is too large"));
  CHECK(mentions(error_of(parse_count("-99999999999999999999999", "--flag")), "is below 1"));
}

TEST_CASE("control characters of the input do not reach the terminal") {
  const std::string message = error_of(parse_count("\x1b[31mred", "--flag"));
  CHECK(message.find('\x1b') == std::string::npos);
}

TEST_CASE("negative counts are accepted if the minimum allows them") {
  const Result<std::int64_t> value = parse_count("-3", "--flag", -5);
  REQUIRE(value.ok());
  CHECK(*value == -3);
}

TEST_CASE("an int is a count that fits") {
  REQUIRE(parse_int("2147483647", "--flag").ok());
  CHECK(*parse_int("2147483647", "--flag") == 2147483647);
  CHECK(mentions(error_of(parse_int("2147483648", "--flag")), "too large"));
  CHECK_FALSE(parse_int("3b", "--flag").ok());
  CHECK_FALSE(parse_int("7", "--flag", 8).ok());
}

TEST_CASE("sizes keep decimal and binary units apart") {
  const auto size = [](const char* text) { return parse_bytes(text, "--flag").value(); };
  CHECK(size("80GiB") == 80_GiB);
  CHECK(size("80GB") == 80_GB);
  CHECK(size("80gb") == 80_GB);
  CHECK(size("80 GiB") == 80_GiB);
  CHECK(size("512Mi") == 512_MiB);
  CHECK(size("80G") == 80_GB);
  CHECK(size("1024") == 1024_B);
  CHECK(size("1024B") == 1024_B);
  CHECK(size("0") == 0_B);
  CHECK(size("-0") == 0_B);
  CHECK(size("1.5GiB") == 1536_MiB);
}

TEST_CASE("anything but a size is refused") {
  const auto text = GENERATE(as<std::string>{}, "", "abc", "-1GB", "nan", "inf", "80XB", "80Gb",
                             "80GiBs", "GB", "1e400", "1e308TB", "80 GB ");
  INFO("'" << text << "'");
  CHECK_FALSE(parse_bytes(text, "--flag").ok());
}

TEST_CASE("a lower-case b is reported as bits") {
  CHECK(mentions(error_of(parse_bytes("80Gb", "--flag")), "bits"));
}

TEST_CASE("bandwidths count bits or bytes as written") {
  const auto rate = [](const char* text) { return parse_bandwidth(text, "--flag").value(); };
  CHECK(rate("400Gbps") == 400_Gbps);
  CHECK(rate("400Gbps") == 50_GBps);
  CHECK(rate("400gbps") == 400_Gbps);
  CHECK(rate("400Gb/s") == 400_Gbps);
  CHECK(rate("400Gbit/s") == 400_Gbps);
  CHECK(rate("50GB/s") == 50_GBps);
  CHECK(rate("50GBps") == 50_GBps);
  CHECK(rate("1GiB/s").in(kBytePerSecond) == 0x1p30);
}

TEST_CASE("anything but a bandwidth is refused") {
  const auto text = GENERATE(as<std::string>{}, "", "400", "400G", "400GB", "0Gbps", "-1Gbps",
                             "fast", "nanGbps", "400Gps", "1e400Gbps", "Gbps");
  INFO("'" << text << "'");
  CHECK_FALSE(parse_bandwidth(text, "--flag").ok());
}

TEST_CASE("a ratio is a finite number inside its range") {
  CHECK(parse_ratio("0.5", "--flag", 0, 1).value() == 0.5);
  CHECK(parse_ratio("1", "--flag", 0, 1).value() == 1.0);
  CHECK(parse_ratio("-2.5e-1", "--flag", -1, 1).value() == -0.25);
  for (const char* text : {"", "1.1", "-0.1", "nan", "inf", "1e999", "0.5x", "0.5k", "half"}) {
    INFO(text);
    CHECK_FALSE(parse_ratio(text, "--flag", 0, 1).ok());
  }
}

TEST_CASE("counts are shown with three significant digits") {
  CHECK(human_count(0) == "0");
  CHECK(human_count(12) == "12");
  CHECK(human_count(999) == "999");
  CHECK(human_count(1024) == "1.02 k");
  CHECK(human_count(9'999) == "10.0 k");
  CHECK(human_count(999'600) == "1.00 M");
  CHECK(human_count(124'439'808) == "124 M");
  CHECK(human_count(6'738'415'616) == "6.74 B");
  CHECK(human_count(70'553'706'496) == "70.6 B");
  CHECK(human_count(1.4e12) == "1.40 T");
  CHECK(human_count(3e15) == "3e+15");
  CHECK(human_count(-2500) == "-2.50 k");
  CHECK(human_count(0.25) == "0.25");
}

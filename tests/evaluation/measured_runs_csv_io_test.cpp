#include "evaluation/measured_runs_csv_io.hpp"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "evaluation/row_filter.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"

namespace echelon {
namespace {

namespace fs = std::filesystem;

const std::string kHeader =
    "row_id,framework,layers,hidden,ffn_hidden,heads,vocab,seq,gpu,gpus,tp,pp,dp,microbatch,"
    "global_batch,step_seconds";
const std::string kRow = "a-1,nanotron,32,4096,14336,32,131072,4096,H100,8,2,1,4,1,256,18.5";

std::vector<MeasuredRun> rows_of(const std::string& csv) {
  const auto rows = parse_runs(csv, "runs.csv");
  REQUIRE(rows.ok());
  return *rows;
}
std::string error_of(const std::string& csv) {
  const auto rows = parse_runs(csv, "runs.csv");
  REQUIRE_FALSE(rows.ok());
  return rows.error().message();
}

/// A file that is deleted at the end of the test.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& content)
      : path_(fs::temp_directory_path() / ("echelon_runs_" + std::to_string(::getpid()) + ".csv")) {
    std::ofstream(path_, std::ios::binary) << content;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() { fs::remove(path_); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  fs::path path_;
};

TEST_CASE("columns are found by name, in any order, and unknown ones are ignored") {
  const auto rows = rows_of(
      "step_seconds,colour,row_id,framework,layers,hidden,ffn_hidden,heads,vocab,seq,gpu,gpus,tp,"
      "pp,dp,"
      "microbatch,global_batch\n"
      "1.5,red,x,nemo,2,8,32,4,100,16,H100,8,1,1,8,1,8\n");
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].row_id == "x");
  CHECK(rows[0].step_seconds == 1.5);
  CHECK(rows[0].layers == 2);
  CHECK(rows[0].row_number == 2);
}

TEST_CASE("a blank cell means an unknown value") {
  const auto rows = rows_of(kHeader + "\nb,nemo,,,,,,,,,,,,,,\n");
  CHECK_FALSE(rows[0].layers.has_value());
  CHECK_FALSE(rows[0].step_seconds.has_value());
  CHECK(rows[0].malformed.empty());
}

TEST_CASE("a malformed number affects only its row, with the place and the text in the reason") {
  const auto rows = rows_of(kHeader + "\n" + kRow +
                            "\nb,nemo,thirty,1,1,1,1,1,g,1,1,1,1,1,1,1\nc-" + kRow + "\n");
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].malformed.empty());
  CHECK(rows[1].malformed == "row 3: layers is 'thirty', expected a whole number of at least 1");
  CHECK(rows[2].malformed.empty());
}

TEST_CASE("numbers are bounded: fractions of layers, negative times, infinities are malformed") {
  const auto reason = [](const std::string& layers, const std::string& seconds) {
    return rows_of(kHeader + "\nb,nemo," + layers + ",1,1,1,1,1,g,1,1,1,1,1,1," + seconds + "\n")[0]
        .malformed;
  };
  CHECK(reason("8.0", "1e-3").empty());
  CHECK_FALSE(reason("8.5", "1").empty());
  CHECK_FALSE(reason("0", "1").empty());
  CHECK_FALSE(reason("99999999999", "1").empty());
  CHECK_FALSE(reason("8", "-1").empty());
  CHECK_FALSE(reason("8", "inf").empty());
  CHECK_FALSE(reason("8", "1.5s").empty());
}

TEST_CASE("a row with another number of cells than the header is malformed") {
  CHECK(rows_of(kHeader + "\na,nemo,1\n")[0].malformed == "row 2: 3 cells under a header of 16");
}

TEST_CASE("quoted cells hold commas, quotes and line breaks") {
  const auto rows = rows_of(kHeader + ",notes\r\n" + kRow + ",\"one, \"\"two\"\"\r\nthree\"\r\n");
  CHECK(rows[0].notes == "one, \"two\"\r\nthree");
}

TEST_CASE("a byte order mark before the header is not part of the first column") {
  CHECK(rows_of("\xEF\xBB\xBF" + kHeader + "\n" + kRow + "\n")[0].row_id == "a-1");
  CHECK(rows_of("\xEF\xBB\xBF\"row_id\"" + kHeader.substr(6) + "\n" + kRow)[0].row_id == "a-1");
}

TEST_CASE("missing columns are all named, with the nearest header") {
  const std::string message = error_of("row_id,stack,layer,hidden\na,b,1,2\n");
  CHECK(message.find("'layers' (is it 'layer'?)") != std::string::npos);
  CHECK(message.find("'step_seconds'") != std::string::npos);
  CHECK(message.find("'hidden'") == std::string::npos);
}

TEST_CASE("a table with another separator is reported with the separator") {
  for (const auto& [separator, name] : {std::pair{';', "';'"}, {'\t', "a tab"}}) {
    std::string table = kHeader + "\n" + kRow + "\n";
    std::ranges::replace(table, ',', separator);
    const std::string error = error_of(table);
    CHECK(error.find("columns separated by " + std::string(name)) != std::string::npos);
    CHECK(error.find("expected a comma") != std::string::npos);
  }
}

TEST_CASE("two rows with one row_id are an error that names both") {
  const std::string error = error_of(kHeader + "\n" + kRow + "\n" + kRow + "\n");
  CHECK(error.find("runs.csv row 3: row_id 'a-1' stands in row 2 too") != std::string::npos);
  const std::string nameless = kRow.substr(kRow.find(','));
  CHECK(rows_of(kHeader + "\n" + nameless + "\n" + nameless + "\n").size() == 2);
}

TEST_CASE("a duplicate column is an error") {
  CHECK(error_of(kHeader + ",gpus\n" + kRow + ",8\n").find("'gpus' stands twice") !=
        std::string::npos);
}

TEST_CASE("an empty table, and one without rows, are reported") {
  CHECK(error_of("").find("empty") != std::string::npos);
  CHECK(error_of("\n\n").find("empty") != std::string::npos);
  CHECK(error_of(kHeader + "\n").find("no row below the header") != std::string::npos);
}

TEST_CASE("an unclosed quote is an error at its row") {
  const std::string message = error_of(kHeader + ",notes\n" + kRow + ",\"cut off he");
  CHECK(message.find("runs.csv row 2") != std::string::npos);
  CHECK(message.find("never closed") != std::string::npos);
}

TEST_CASE("an unclosed quote in a huge table is noticed after one MiB, not at its end") {
  const std::string message =
      error_of(kHeader + ",notes\n" + kRow + ",\"" + std::string(3 << 20, 'x'));
  CHECK(message.find("more than 1 MiB") != std::string::npos);
}

TEST_CASE("a quote inside an unquoted cell is an error") {
  CHECK(error_of(kHeader + "\nA 5\" disk,b\n").find("a quote in the wrong place") !=
        std::string::npos);
}

TEST_CASE("text that is not UTF-8 is an error at its row") {
  for (const std::string bad :
       {"caf\xE9", "\xC0\xAF", "\xED\xA0\x80", "\xF5\x80\x80\x80", "\xE2\x82"}) {
    CHECK(error_of(kHeader + ",notes\n" + kRow + "," + bad + "\n").find("not UTF-8") !=
          std::string::npos);
  }
  CHECK(rows_of(kHeader + ",notes\n" + kRow + ",caf\xC3\xA9 \xF0\x9F\x98\x80\n")[0].notes ==
        "caf\xC3\xA9 \xF0\x9F\x98\x80");
}

TEST_CASE("a missing file is an environment error, a directory an input error") {
  const auto missing = read_runs("/nonexistent/runs.csv");
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().kind == Error::Kind::environment);
  const auto directory = read_runs(fs::temp_directory_path().string());
  REQUIRE_FALSE(directory.ok());
  CHECK(directory.error().kind == Error::Kind::input);
  CHECK(directory.error().message().find("is a directory") != std::string::npos);
}

TEST_CASE("a file longer than 1 GiB is refused before it is read") {
  const TemporaryFile file("");
  fs::resize_file(file.path(), (std::uintmax_t{1} << 30) + 1);  // sparse: takes no space
  const auto rows = read_runs(file.path());
  REQUIRE_FALSE(rows.ok());
  CHECK(rows.error().found == "the file is longer than 1 GiB");
}

TEST_CASE("rows that cross the blocks of a file are read whole") {
  std::string csv = kHeader + "\n";
  const int count = 5000;  // about five blocks
  for (int i = 0; i < count; ++i) {
    csv += "a-" + std::to_string(i) + kRow.substr(kRow.find(',')) + "\n";
  }
  const TemporaryFile file(csv);
  const auto rows = read_runs(file.path());
  REQUIRE(rows.ok());
  REQUIRE(rows->size() == count);
  for (const MeasuredRun& row : *rows) {
    REQUIRE(row.malformed.empty());
    REQUIRE(row.global_batch == 256);
  }
}

TEST_CASE("the published sample has no malformed row") {
  const auto rows = read_runs(ECHELON_SOURCE_DIR "/tests/evaluation/runs/published.csv");
  REQUIRE(rows.ok());
  CHECK(rows->size() == 49);
  for (const MeasuredRun& row : *rows) CHECK(row.malformed == "");
}

TEST_CASE("the former names of columns are read in tables and in filters") {
  std::string header = kHeader + ",framework_detail,zero_group_size\n";
  const std::string row = kRow + ",v0.4,2\n";
  const auto now = rows_of(header + row);
  header.replace(header.find("framework,"), 9, "stack");
  header.replace(header.find("framework_detail"), 16, "stack_detail");
  header.replace(header.find("zero_group_size"), 15, "shard_group");
  const auto before = rows_of(header + row);
  for (const auto& rows : {now, before}) {
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].framework == "nanotron");
    CHECK(rows[0].framework_detail == "v0.4");
    CHECK(rows[0].shard_group == 2);
    for (const char* where : {"stack=nanotron", "framework=nanotron", "shard_group=2",
                              "zero_group_size=2", "stack_detail=v0.4"}) {
      CAPTURE(where);
      const auto filter = RowFilter::parse(where, "--where");
      REQUIRE(filter.ok());
      CHECK(filter->keeps(rows[0]));
    }
  }
  CHECK(error_of(kHeader + ",stack\n" + kRow + ",nemo\n").find("'framework' stands twice") !=
        std::string::npos);
}

bool keeps(const std::string& where) {
  const auto filter = RowFilter::parse(where, "--where");
  REQUIRE(filter.ok());
  return filter->keeps(
      rows_of(kHeader + ",grade,nic_gbps_per_node,gated_mlp\n" + kRow + ",A,,1\n")[0]);
}

TEST_CASE("a filter keeps rows that meet all of its conditions") {
  CHECK(keeps(""));
  CHECK(keeps("framework=nanotron,gpus>=8,grade=A"));
  CHECK(keeps(" gpus < 9 , gpus <= 8 , gpus > 7 , gpus != 9 , step_seconds > 18.4 "));
  CHECK(keeps("gated_mlp=1"));
  CHECK(keeps("framework=nanotron gpus>=8, grade=A,"));  // as plans are filtered
  CHECK_FALSE(keeps("framework=nanotron,gpus>8"));
  CHECK_FALSE(keeps("grade!=A"));
  CHECK_FALSE(keeps("gpus=9"));
}

TEST_CASE("a blank cell equals only the empty value and has no order") {
  CHECK(keeps("nic_gbps_per_node="));
  CHECK_FALSE(keeps("nic_gbps_per_node!="));
  CHECK_FALSE(keeps("nic_gbps_per_node<1e9"));
  CHECK_FALSE(keeps("nic_gbps_per_node=3200"));
}

TEST_CASE("a filter that cannot be read names the nearest column") {
  const auto message = [](const std::string& where) {
    const auto filter = RowFilter::parse(where, "--where");
    REQUIRE_FALSE(filter.ok());
    return filter.error().message();
  };
  CHECK(message("framewrok=nemo").find("did you mean 'framework'?") != std::string::npos);
  CHECK(message("gpus").find("not a condition") != std::string::npos);
  CHECK(message("gpus=8,grade").find("not a condition") != std::string::npos);
  CHECK(message("gpus>=many").find("not a number") != std::string::npos);
  CHECK(message("gpus!8").find("not a condition") != std::string::npos);
  CHECK(message("framework>nemo").find("text column") != std::string::npos);
}

}  // namespace
}  // namespace echelon

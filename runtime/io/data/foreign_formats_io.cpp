#include "runtime/io/data/foreign_formats_io.hpp"

#include <filesystem>
#include <iterator>

#include "core/json/json_io.hpp"

namespace echelon {
namespace {

using namespace std::string_view_literals;

/// First bytes. Sources: the formats' specifications (RFC 1952, RFC 8878, apache/parquet-format,
/// Arrow IPC file format, APPNOTE of ZIP, xz and bzip2 file formats, HDF5, NumPy's NEP 1).
struct Magic {
  std::string_view bytes;
  const char* name;
};
constexpr Magic kMagic[] = {{"PAR1"sv, "a Parquet file"},
                            {"ARROW1"sv, "an Arrow file"},
                            {"\xff\xff\xff\xff"sv, "an Arrow stream"},
                            {"\x1f\x8b"sv, "a gzip archive"},
                            {"\x28\xb5\x2f\xfd"sv, "a Zstandard archive"},
                            {"PK\x03\x04"sv, "a zip archive"},
                            {"\xfd"
                             "7zXZ\0"sv,
                             "an xz archive"},
                            {"BZh"sv, "a bzip2 archive"},
                            {"\x89HDF\r\n"sv, "an HDF5 file"},
                            {"\x93NUMPY"sv, "a NumPy file"}};

constexpr const char* kExpected =
    "plain text, llm.c's .bin, or Megatron's .bin with its .idx next to it";

bool is_json_object(std::string_view line) {
  const Result<Json> parsed = parse_json(line, "the first line");
  return parsed.ok() && parsed->is_object();
}

/// The first line is an object; or, if the beginning does not contain all of it, looks like one.
bool is_json_lines(std::string_view text, bool whole) {
  const std::size_t end = text.find('\n');
  if (whole || end != std::string_view::npos) return is_json_object(text.substr(0, end));
  constexpr std::size_t kLongestKey = 256;
  return text.starts_with("{\"") && text.find("\":") < kLongestKey;
}

std::string_view without_leading_blanks(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // a byte order mark
  const std::size_t at = text.find_first_not_of(" \t\r\n");
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

}  // namespace

Status check_is_text(const std::string& path, std::string_view beginning) {
  for (const Magic& magic : kMagic) {
    if (!beginning.starts_with(magic.bytes)) continue;
    return input_error(path, magic.name, kExpected,
                       "unpack it, and write its text, or its tokens, to a file of their own");
  }
  const std::string_view text = without_leading_blanks(beginning);
  const bool whole = std::ssize(beginning) < kBeginning;
  if (text.starts_with('{') && is_json_lines(text, whole)) {
    return input_error(path, "JSON lines", kExpected,
                       "to train on the bytes of their text: jq -r .text FILE > data.txt");
  }
  const auto ending = std::filesystem::path(path).extension();
  const bool called_json = ending == ".json" || ending == ".jsonl" || ending == ".ndjson";
  if (called_json && (text.starts_with('{') || text.starts_with('['))) {
    return input_error(path, "JSON", kExpected,
                       "to train on the bytes of its texts: jq -r '.[].text' FILE > data.txt");
  }
  return Done{};
}

}  // namespace echelon

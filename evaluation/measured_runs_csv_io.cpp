// Reads tables of measured runs with libcsv, a block at a time.
#include "evaluation/measured_runs_csv_io.hpp"

#include <csv.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "core/base/did_you_mean.hpp"
#include "core/base/text.hpp"

namespace echelon {

namespace {

constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;
constexpr std::size_t kMostCellBytes = std::size_t{1} << 20;
constexpr std::size_t kBlock = std::size_t{1} << 16;
constexpr std::int64_t kLargestWhole = 2'147'483'647;  ///< every count of a run fits an int
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

constexpr bool kMandatory = true;

const std::array kColumns = {
    RunColumn{"row_id", &MeasuredRun::row_id, kMandatory},
    RunColumn{"source", &MeasuredRun::source},
    RunColumn{"publisher", &MeasuredRun::publisher},
    RunColumn{"grade", &MeasuredRun::grade},
    RunColumn{"status", &MeasuredRun::status},
    RunColumn{"framework", &MeasuredRun::framework, kMandatory, 1, "stack"},
    RunColumn{"framework_detail", &MeasuredRun::framework_detail, false, 1, "stack_detail"},
    RunColumn{"date", &MeasuredRun::date},
    RunColumn{"task", &MeasuredRun::task},
    RunColumn{"notes", &MeasuredRun::notes},
    RunColumn{"locator", &MeasuredRun::locator},
    RunColumn{"group", &MeasuredRun::group},
    RunColumn{"model", &MeasuredRun::model},
    RunColumn{"layers", &MeasuredRun::layers, kMandatory},
    RunColumn{"hidden", &MeasuredRun::hidden, kMandatory},
    RunColumn{"ffn_hidden", &MeasuredRun::ffn_hidden, kMandatory},
    RunColumn{"heads", &MeasuredRun::heads, kMandatory},
    RunColumn{"kv_heads", &MeasuredRun::kv_heads},
    RunColumn{"head_dim", &MeasuredRun::head_dim},
    RunColumn{"vocab", &MeasuredRun::vocab, kMandatory},
    RunColumn{"seq", &MeasuredRun::seq, kMandatory},
    RunColumn{"gated_mlp", &MeasuredRun::gated_mlp},
    RunColumn{"tied_embeddings", &MeasuredRun::tied_embeddings},
    RunColumn{"attention", &MeasuredRun::attention},
    RunColumn{"attention_detail", &MeasuredRun::attention_detail},
    RunColumn{"experts", &MeasuredRun::experts, false, 0},
    RunColumn{"experts_per_token", &MeasuredRun::experts_per_token, false, 0},
    RunColumn{"expert_ffn_hidden", &MeasuredRun::expert_ffn_hidden, false, 0},
    RunColumn{"shared_expert_ffn_hidden", &MeasuredRun::shared_expert_ffn_hidden, false, 0},
    RunColumn{"first_dense_layers", &MeasuredRun::first_dense_layers, false, 0},
    RunColumn{"gpu", &MeasuredRun::gpu, kMandatory},
    RunColumn{"gpu_memory_gb", &MeasuredRun::gpu_memory_gb},
    RunColumn{"gpus", &MeasuredRun::gpus, kMandatory},
    RunColumn{"gpus_per_node", &MeasuredRun::gpus_per_node},
    RunColumn{"nic_gbps_per_node", &MeasuredRun::nic_gbps_per_node},
    RunColumn{"tp", &MeasuredRun::tp, kMandatory},
    RunColumn{"cp", &MeasuredRun::cp},
    RunColumn{"ep", &MeasuredRun::ep},
    RunColumn{"etp", &MeasuredRun::etp},
    RunColumn{"pp", &MeasuredRun::pp, kMandatory},
    RunColumn{"vpp", &MeasuredRun::vpp},
    RunColumn{"dp", &MeasuredRun::dp, kMandatory},
    RunColumn{"schedule", &MeasuredRun::schedule},
    RunColumn{"sequence_parallel", &MeasuredRun::sequence_parallel},
    RunColumn{"zero", &MeasuredRun::zero, false, 0},
    RunColumn{"zero_group_size", &MeasuredRun::shard_group, false, 1, "shard_group"},
    RunColumn{"microbatch", &MeasuredRun::microbatch, kMandatory},
    RunColumn{"global_batch", &MeasuredRun::global_batch, kMandatory},
    RunColumn{"grad_accumulation", &MeasuredRun::grad_accumulation},
    RunColumn{"recompute", &MeasuredRun::recompute},
    RunColumn{"recompute_detail", &MeasuredRun::recompute_detail},
    RunColumn{"precision", &MeasuredRun::precision},
    RunColumn{"precision_detail", &MeasuredRun::precision_detail},
    RunColumn{"cuda_graph", &MeasuredRun::cuda_graph},
    RunColumn{"overlap_detail", &MeasuredRun::overlap_detail},
    RunColumn{"flash_attention", &MeasuredRun::flash_attention},
    RunColumn{"torch_compile", &MeasuredRun::torch_compile},
    RunColumn{"offload", &MeasuredRun::offload},
    RunColumn{"step_seconds", &MeasuredRun::step_seconds, kMandatory},
    RunColumn{"tokens_per_second_per_gpu", &MeasuredRun::tokens_per_second_per_gpu},
    RunColumn{"tflops_per_gpu", &MeasuredRun::tflops_per_gpu},
    RunColumn{"peak_memory_bytes", &MeasuredRun::peak_memory_bytes},
    RunColumn{"static_memory_bytes", &MeasuredRun::static_memory_bytes},
    RunColumn{"memory_kind", &MeasuredRun::memory_kind},
    RunColumn{"memory_by_stage", &MeasuredRun::memory_by_stage},
    RunColumn{"net_allreduce_busbw_GBps", &MeasuredRun::net_allreduce_busbw_GBps},
    RunColumn{"net_allgather_busbw_GBps", &MeasuredRun::net_allgather_busbw_GBps},
    RunColumn{"net_reducescatter_busbw_GBps", &MeasuredRun::net_reducescatter_busbw_GBps},
};

/// Well-formed UTF-8 (Unicode 15, table 3-7): no overlong forms, no surrogates, at most U+10FFFF.
bool is_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto byte = [&](std::size_t at) {
      return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
    };
    const unsigned lead = byte(i);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const std::size_t tail = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4) return false;
    for (std::size_t k = 1; k <= tail; ++k) {
      if ((byte(i + k) & 0xC0u) != 0x80u) return false;
    }
    const unsigned second = byte(i + 1);
    if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
        (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
      return false;
    }
    i += tail + 1;
  }
  return true;
}

std::optional<double> number_in(std::string_view cell) {
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (error != std::errc{} || end != cell.data() + cell.size() || !std::isfinite(value)) return {};
  return value;
}

}  // namespace

std::string set_cell(const RunColumn& column, std::string_view cell, MeasuredRun& row) {
  if (const auto* text = std::get_if<std::string MeasuredRun::*>(&column.field)) {
    row.*(*text) = cell;
    return {};
  }
  if (cell.empty()) return {};
  const std::optional<double> number = number_in(cell);
  if (const auto* flag = std::get_if<FlagCell MeasuredRun::*>(&column.field)) {
    if (!number || (*number != 0 && *number != 1)) return "0 or 1";
    row.*(*flag) = *number == 1;
  } else if (const auto* whole = std::get_if<WholeCell MeasuredRun::*>(&column.field)) {
    if (!number || *number != std::floor(*number) || *number < static_cast<double>(column.least) ||
        *number > static_cast<double>(kLargestWhole)) {
      return fmt::format("a whole number of at least {}", column.least);
    }
    row.*(*whole) = static_cast<std::int64_t>(*number);
  } else {
    if (!number || *number <= 0) return "a positive number";
    row.*std::get<NumberCell MeasuredRun::*>(column.field) = *number;
  }
  return {};
}

namespace {

/// Takes the bytes of a table in blocks and builds its rows.
class TableParser {
 public:
  explicit TableParser(std::string_view where) : where_(where) {
    EXPECTS(csv_init(&parser_, CSV_STRICT | CSV_STRICT_FINI) == 0, "libcsv does not start");
    csv_set_blk_size(&parser_, kBlock);
  }
  TableParser(const TableParser&) = delete;
  TableParser& operator=(const TableParser&) = delete;
  ~TableParser() { csv_free(&parser_); }

  Status feed(std::string_view block) {
    if (!std::exchange(started_, true) && block.starts_with(kByteOrderMark)) {
      block.remove_prefix(kByteOrderMark.size());
    }
    if (csv_parse(&parser_, block.data(), block.size(), on_cell, on_row, this) != block.size()) {
      fail("a quote in the wrong place", "quotes around a whole cell, doubled inside it");
    } else if (csv_get_buffer_size(&parser_) > kMostCellBytes) {
      fail("a cell of more than 1 MiB", "a closing quote");
    }
    return error_ ? Status(*error_) : Status(Done{});
  }

  Result<std::vector<MeasuredRun>> finish() {
    if (csv_fini(&parser_, on_cell, on_row, this) != 0) {
      fail("a quote that is never closed", "a closing quote", "is the file cut short?");
    }
    if (error_) return *error_;
    if (row_number_ == 1) return empty("the file is empty");
    if (rows_.empty()) return empty("no row below the header");
    std::map<std::string, SoftwareEvidence> softwares;
    for (const MeasuredRun& row : rows_) softwares[row.framework].add(row.evidence());
    for (MeasuredRun& row : rows_) row.of_software = softwares.at(row.framework);
    return std::move(rows_);
  }

 private:
  static void on_cell(void* bytes, std::size_t size, void* self) {
    static_cast<TableParser*>(self)->cell({static_cast<const char*>(bytes), size});
  }
  static void on_row(int, void* self) { static_cast<TableParser*>(self)->end_of_row(); }

  void cell(std::string_view text) {
    if (error_) return;
    if (!is_utf8(text)) {
      fail(fmt::format("cell {} is not UTF-8", cells_ + 1), "a table saved as UTF-8");
    } else if (row_number_ == 1) {
      headers_.emplace_back(text);
    } else if (cells_ < columns_.size() && columns_[cells_] != nullptr) {
      const RunColumn& column = *columns_[cells_];
      const std::string expected = set_cell(column, text, row_);
      if (!expected.empty() && row_.malformed.empty()) {
        row_.malformed = fmt::format("row {}: {} is {}, expected {}", row_number_, column.name,
                                     in_quotes(text, 40), expected);
      }
    }
    ++cells_;
  }

  void end_of_row() {
    if (!error_ && row_number_ == 1) {
      header();
    } else if (!error_) {
      if (cells_ != columns_.size()) {
        row_.malformed = fmt::format("row {}: {} cells under a header of {}", row_number_, cells_,
                                     columns_.size());
      }
      row_.row_number = row_number_;
      if (!row_.row_id.empty()) {
        const auto [first, fresh] = row_of_id_.try_emplace(row_.row_id, row_number_);
        if (!fresh) {
          return fail(fmt::format("row_id {} stands in row {} too", in_quotes(row_.row_id, 60),
                                  first->second),
                      "a row_id of its own for each run");
        }
      }
      rows_.push_back(std::exchange(row_, {}));
    }
    ++row_number_;
    cells_ = 0;
  }

  void header() {
    std::string missing;
    columns_.assign(headers_.size(), nullptr);
    std::vector<std::string> unknown = headers_;  // may be misspelt
    std::erase_if(unknown, [](const std::string& header) {
      return std::ranges::any_of(kColumns,
                                 [&](const RunColumn& column) { return column.is_named(header); });
    });
    for (const RunColumn& column : kColumns) {
      bool seen = false;
      for (std::size_t i = 0; i < headers_.size(); ++i) {
        if (!column.is_named(headers_[i])) continue;
        if (seen) return fail(fmt::format("column '{}' stands twice", column.name), "it once");
        seen = true;
        columns_[i] = &column;
      }
      if (seen || !column.mandatory) continue;
      const std::string near = nearest_name(column.name, unknown);
      missing += fmt::format("{}'{}'{}", missing.empty() ? "" : ", ", column.name,
                             near.empty() ? "" : fmt::format(" (is it '{}'?)", near));
    }
    if (missing.empty()) return;
    if (headers_.size() == 1) {
      for (const auto& [separator, name] : {std::pair{';', "';'"}, {'\t', "a tab"}, {'|', "'|'"}}) {
        if (headers_.front().find(separator) == std::string::npos) continue;
        return fail(fmt::format("columns separated by {}", name), "a comma between columns",
                    "export the table as CSV with commas");
      }
    }
    error_ = input_error(where_, "the header lacks " + missing,
                         "a table of measured runs with these columns");
  }

  void fail(std::string found, std::string expected, std::string hint = {}) {
    if (error_) return;
    error_ = input_error(fmt::format("{} row {}", where_, row_number_), std::move(found),
                         std::move(expected), std::move(hint));
  }
  [[nodiscard]] Error empty(std::string found) const {
    return input_error(where_, std::move(found),
                       "a header of column names and at least one row below it");
  }

  std::string where_;
  csv_parser parser_{};
  std::vector<std::string> headers_;
  std::vector<const RunColumn*> columns_;  ///< one per header; null where the column is ignored
  std::vector<MeasuredRun> rows_;
  MeasuredRun row_;
  std::map<std::string, std::int64_t> row_of_id_;
  std::int64_t row_number_ = 1;
  std::size_t cells_ = 0;
  bool started_ = false;
  std::optional<Error> error_;
};

class File {
 public:
  explicit File(const std::string& path)
      : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY)) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  [[nodiscard]] int get() const { return descriptor_; }

 private:
  int descriptor_;
};

}  // namespace

void SoftwareEvidence::add(const SoftwareEvidence& other) {
  splits_model = splits_model || other.splits_model;
  splits_optimizer = splits_optimizer || other.splits_optimizer;
  if (first_year == 0 || (other.first_year > 0 && other.first_year < first_year)) {
    first_year = other.first_year;
  }
}

SoftwareEvidence MeasuredRun::evidence() const {
  const auto many = [](const WholeCell& cell) { return cell.value_or(1) > 1; };
  const std::int64_t stage = zero.value_or(0);
  SoftwareEvidence evidence{many(tp) || many(pp) || many(ep), stage == 1 || stage == 2, 0};
  std::from_chars(date.data(), date.data() + date.size(), evidence.first_year);
  return evidence;
}

bool MeasuredRun::out_of_memory() const {
  const std::string outcome = lower_case(status);
  if (outcome == "oom" || outcome.find("out of memory") != std::string::npos) return true;
  if (step_seconds) return false;
  const std::string remarks = "; " + lower_case(notes);
  if (remarks.find("does-not-fit label") != std::string::npos) return true;
  for (std::size_t at = remarks.find("; oom"); at != std::string::npos;
       at = remarks.find("; oom", at + 1)) {
    const std::size_t end = at + 5;
    if (end == remarks.size() || !(remarks[end] >= 'a' && remarks[end] <= 'z')) return true;
  }
  return false;
}

std::span<const RunColumn> run_columns() { return kColumns; }

Result<std::vector<MeasuredRun>> read_runs(const std::string& path) {
  const auto unreadable = [&] {
    return environment_error(path, std::string("cannot be read: ") + std::strerror(errno),
                             "name a table of measured runs (.csv)");
  };
  const auto too_long = [&] {
    return input_error(path, "the file is longer than 1 GiB", "a table of at most 1 GiB");
  };
  const File file(path);
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return unreadable();
  if (S_ISDIR(info.st_mode)) {
    return input_error(path, "is a directory, not a file", "a table of measured runs (.csv)",
                       "name the table inside it");
  }
  if (S_ISREG(info.st_mode) && info.st_size > kMostBytes) return too_long();
  TableParser parser(path);
  std::vector<char> block(kBlock);
  for (std::int64_t total = 0;;) {
    const ssize_t got = ::read(file.get(), block.data(), block.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable();
    if (got == 0) return parser.finish();
    total += got;
    if (total > kMostBytes) return too_long();
    const Status fed = parser.feed({block.data(), static_cast<std::size_t>(got)});
    if (!fed) return fed.error();
  }
}

Result<std::vector<MeasuredRun>> parse_runs(std::string_view csv, std::string_view where) {
  TableParser parser(where);
  for (std::size_t at = 0; at < csv.size(); at += kBlock) {
    const Status fed = parser.feed(csv.substr(at, kBlock));
    if (!fed) return fed.error();
  }
  return parser.finish();
}

}  // namespace echelon

// Tables of measured runs: one row is one measured configuration, in comma-separated values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/result.hpp"
#include "core/model/model.hpp"

namespace echelon {

using WholeCell = std::optional<std::int64_t>;  ///< blank cells stay empty: "the source is silent"
using NumberCell = std::optional<double>;
using FlagCell = std::optional<bool>;

/// What the rows of one software in a table show together. A software without a description is
/// judged by all of them, so that one of its runs is not taken for another software than the next.
struct SoftwareEvidence {
  bool splits_model = false;      ///< tp, pp or ep > 1 in some row
  bool splits_optimizer = false;  ///< ZeRO-1 or ZeRO-2 in some row
  int first_year = 0;             ///< the earliest of the column `date`; 0: none is given

  void add(const SoftwareEvidence& other);
};

/// One measured run. Names are the column names of the table, but shard_group for zero_group_size;
/// units stand in the names.
struct MeasuredRun {
  std::int64_t row_number = 0;  ///< as a spreadsheet counts: the header is row 1
  std::string malformed;        ///< why the row cannot be used ("" when it can)

  std::string row_id, source, publisher, grade, status, framework, framework_detail, date, task,
      notes, locator, group;
  std::string model, attention, attention_detail;
  /// The model of a log or a flag, where it has what no column says: it takes the columns' place.
  std::optional<ModelSpec> whole_model;
  WholeCell layers, hidden, ffn_hidden, heads, kv_heads, head_dim, vocab, seq;
  WholeCell experts, experts_per_token, expert_ffn_hidden, shared_expert_ffn_hidden;
  WholeCell first_dense_layers;
  FlagCell gated_mlp, tied_embeddings;
  std::string gpu;
  NumberCell gpu_memory_gb, nic_gbps_per_node;
  WholeCell gpus, gpus_per_node;
  WholeCell tp, cp, ep, etp, pp, vpp, dp, zero, shard_group;
  std::string schedule;
  FlagCell sequence_parallel, flash_attention, torch_compile;
  WholeCell microbatch, global_batch, grad_accumulation;
  std::string recompute, recompute_detail, precision, precision_detail, cuda_graph, overlap_detail,
      offload;
  NumberCell step_seconds, tokens_per_second_per_gpu, tflops_per_gpu;
  NumberCell peak_memory_bytes, static_memory_bytes;
  std::string memory_kind, memory_by_stage;
  NumberCell net_allreduce_busbw_GBps, net_allgather_busbw_GBps, net_reducescatter_busbw_GBps;

  SoftwareEvidence of_software;  ///< of the rows of `framework`; the table's reader fills it in

  /// The run failed for lack of memory: its status says so, or it has no step time and a remark in
  /// `notes` begins with OOM or calls it a does-not-fit label. Its peak is cut short.
  [[nodiscard]] bool out_of_memory() const;
  /// What this row alone shows of its software.
  [[nodiscard]] SoftwareEvidence evidence() const;
};

using RunField = std::variant<std::string MeasuredRun::*, WholeCell MeasuredRun::*,
                              NumberCell MeasuredRun::*, FlagCell MeasuredRun::*>;

/// A column that is read. Other columns of a table are ignored.
struct RunColumn {
  std::string_view name;
  RunField field;
  bool mandatory = false;
  std::int64_t least = 1;             ///< of whole numbers
  std::string_view former_name = "";  ///< its name in older tables, which are still read
  [[nodiscard]] bool is_named(std::string_view header) const {
    return header == name || (!former_name.empty() && header == former_name);
  }
};
[[nodiscard]] std::span<const RunColumn> run_columns();
/// Stores the text of a cell in its field; "" leaves a number blank. Returns the expected input if
/// the text is another, or "".
[[nodiscard]] std::string set_cell(const RunColumn& column, std::string_view cell,
                                   MeasuredRun& row);
/// The text of a cell, which set_cell() reads as the same value.
[[nodiscard]] std::string cell_text(const RunColumn& column, const MeasuredRun& row);
/// A table of these rows, with every column: parse_runs() reads the same rows.
[[nodiscard]] std::string runs_to_csv(std::span<const MeasuredRun> rows);

/// Reads a table: UTF-8, RFC 4180, columns by header name in any order. A cell that is not the
/// number it should be, or a row with too few or too many cells, makes that row `malformed` and
/// leaves the others alone. Errors: the file cannot be read (missing, a directory, no permission),
/// is longer than 1 GiB, is empty or has no rows, is not UTF-8, has a broken or unclosed quote, a
/// mandatory column missing (all of them named, with the nearest header), a column twice.
[[nodiscard]] Result<std::vector<MeasuredRun>> read_runs(const std::string& path);
/// The same from text already in memory; `where` names it in errors.
[[nodiscard]] Result<std::vector<MeasuredRun>> parse_runs(std::string_view csv,
                                                          std::string_view where);

}  // namespace echelon

// Current errors of the collectives against every published table of a describable machine.
// They may only shrink. docs/collectives.md holds the same table;
// ECHELON_UPDATE_GOLDENS=1 rewrites it.
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "core/base/files.hpp"
#include "costmodel/calibration/calibration_io.hpp"
#include "costmodel/collectives/collectives_fit.hpp"
#include "tests/places.hpp"
#include "tests/support/catch.hpp"

using namespace echelon;

namespace {

const std::string kTests = std::string(ECHELON_SOURCE_DIR) + "/tests/";
const std::string kDocument = std::string(ECHELON_SOURCE_DIR) + "/docs/collectives.md";

struct Limits {
  double sheet, fitted, left_out;  ///< percent
};

/// Rows of the table measured on one machine, and its description.
struct Subject {
  const char* name;
  const char* machine;  ///< column of the table
  int nodes, ranks;
  const char* setting;  ///< column algo_env; "": any
  const char* cluster;  ///< of the catalog, or a file below tests/
  double node_GBps;     ///< out of a node, one direction; 0: the description's
  Limits limits;
};

// docs/collectives.md lists, next to the figures, the faults of machines that the tables show and
// the facts that a description cannot contain.
constexpr Subject kSubjects[] = {
    {"8 B200 (Vultr)", "HGX B200 (Vultr)", 1, 8, "", "dgx-b200", 0, {13, 7, 8}},
    {"2×8 B200 NDR (Vultr)", "HGX B200 (Vultr)", 2, 16, "", "dgx-b200", 0, {38, 9, 9}},
    {"8 B200 (GCP a4)", "GCP a4-highgpu-8g", 1, 8, "", "gcp-a4", 0, {11, 7, 8}},
    {"2 of 8 B200 (GCP a4)", "GCP a4-highgpu-8g", 1, 2, "", "gcp-a4", 0, {55, 7, 7}},
    {"2×8 B200 RoCE (GCP a4), all-reduce",
     "GCP a4-highgpu-8g",
     2,
     16,
     "NCCL_NET=gIB; NCCL_CROSS_NIC=0",
     "gcp-a4",
     0,
     {18, 9, 13}},
    {"2×8 B200 RoCE (GCP a4), all-gather ¹",
     "GCP a4-highgpu-8g",
     2,
     16,
     "gIB; 8 GPUs + 8 NICs",
     "gcp-a4",
     0,
     {385, 17, 18}},
    {"2×1 B200 RoCE (GCP a4)", "GCP a4-highgpu-8g", 2, 2, "", "gcp-a4", 0, {20, 7, 7}},
    {"8 B300",
     "8x B300 SXM6 node",
     1,
     8,
     "default; time derived from busbw",
     "dgx-b300",
     0,
     {15, 11, 11}},
    {"8 B300 (OCI)", "OCI BM.GPU.B300.8", 1, 8, "", "dgx-b300", 0, {5, 5, 0}},
    {"2×8 B300 RoCE (OCI)", "OCI BM.GPU.B300.8", 2, 16, "", "dgx-b300", 0, {14, 6, 13}},
    {"4 GB200", "OCI BM.GPU.GB200.4", 1, 4, "", "gb200-nvl72", 0, {12, 3, 5}},
    {"8 GB200", "OCI BM.GPU.GB200.4", 2, 8, "", "gb200-nvl72", 0, {10, 1, 1}},
    {"64 GB200, one rack", "OCI BM.GPU.GB200.4", 16, 64, "", "gb200-nvl72", 0, {19, 3, 4}},
    {"128 GB200, two racks", "OCI BM.GPU.GB200.4", 32, 128, "", "gb200-nvl72", 0, {16, 3, 8}},
    {"192 GB200, three racks", "OCI BM.GPU.GB200.4", 48, 192, "", "gb200-nvl72", 0, {25, 3, 7}},
    {"4 GB300", "OCI BM.GPU.GB300.4", 1, 4, "", "gb300-nvl72", 0, {9, 4, 4}},
    {"8 GB300", "OCI BM.GPU.GB300.4", 2, 8, "", "gb300-nvl72", 0, {5, 5, 5}},
    {"64 GB300, one rack", "OCI BM.GPU.GB300.4", 16, 64, "", "gb300-nvl72", 0, {12, 1, 3}},
    {"128 GB300, two racks ²", "OCI BM.GPU.GB300.4", 32, 128, "", "gb300-nvl72", 0, {136, 65, 68}},
    {"8 H100", "HGX H100", 1, 8, "", "dgx-h100", 0, {4, 2, 3}},
    {"2×8 H100 NDR ³", "HGX H100", 2, 16, "default, no HCA list", "dgx-h100", 0, {151, 7, 7}},
    {"2×8 H100, network not named ³", "8xH100 node", 2, 16, "", "dgx-h100", 0, {161, 1, 2}},
    {"2×8 H100 TCPXO (GCP a3-mega) ⁴",
     "GCP a3-megagpu-8g",
     2,
     16,
     "",
     "gcp-a3-mega",
     0,
     {61, 18, 20}},
    {"8 H800, broadcast",
     "Inspur nf5688m7 8xH800",
     1,
     8,
     "",
     "validation/machines/h800.json",
     0,
     {14, 8, 8}},
    {"8 A100 80 GB", "8xA100-80GB NVSwitch (8 processes)", 1, 8, "", "dgx-a100", 0, {16, 11, 12}},
    {"8 A100 80 GB, send/receive ⁵", "8xA100 NVSwitch", 1, 8, "", "dgx-a100", 0, {44, 11, 20}},
    {"4 of 8 A100 (DGX)", "DGX A100 640GB", 1, 4, "", "dgx-a100", 0, {10, 7, 8}},
    {"8 A100 40 GB (OCI)", "OCI BM.GPU4.8", 1, 8, "", "dgx-a100-40gb", 0, {17, 5, 7}},
    {"2×8 A100, 16×100 Gb RoCE (OCI)",
     "OCI BM.GPU4.8",
     2,
     16,
     "default",
     "dgx-a100-40gb",
     0,
     {15, 12, 14}},
    {"2×8 A100, 16×100 Gb RoCE, untuned ³",
     "OCI BM.GPU4.8",
     2,
     16,
     "default (untuned RoCE)",
     "dgx-a100-40gb",
     0,
     {190, 25, 46}},
    {"2×8 A100, 4×HDR with SHARP (ABCI) ⁶",
     "ABCI 2.0 compute node (A)",
     2,
     16,
     "",
     "dgx-a100-40gb",
     100,
     {63, 4, 5}},
    {"2×8 V100, 100 Gb EFA (p3dn) ⁴", "AWS p3dn.24xlarge", 2, 16, "", "aws-p3dn", 0, {155, 10, 12}},
    {"2×8 MI300X",
     "8x MI300X node",
     2,
     16,
     "",
     "topologies/machines/full-mesh.json",
     0,
     {15, 5, 5}},
    {"8 MI355X", "OCI BM.GPU.MI355X.8", 1, 8, "", "validation/machines/mi355x.json", 0, {7, 7, 7}},
    {"8 MI355X (Pollara)",
     "OCI BM.GPU.MI355X.8 (Pollara NIC)",
     1,
     8,
     "",
     "validation/machines/mi355x.json",
     0,
     {8, 8, 8}},
    {"2×8 MI355X (Pollara)",
     "OCI BM.GPU.MI355X.8 (Pollara NIC)",
     2,
     16,
     "",
     "validation/machines/mi355x.json",
     0,
     {4, 1, 1}},
    {"4×8 MI355X (Pollara)",
     "OCI BM.GPU.MI355X.8 (Pollara NIC)",
     4,
     32,
     "",
     "validation/machines/mi355x.json",
     0,
     {10, 10, 10}},
    {"4 RTX 4090, PCIe P2P",
     "RTX4090 server with P2P driver patch",
     1,
     4,
     "",
     "validation/machines/rtx-4090-peer-access.json",
     0,
     {9, 2, 3}},
};

std::vector<MeasuredCollective> rows_of(const Subject& subject,
                                        const std::vector<MeasuredCollective>& table) {
  std::vector<MeasuredCollective> rows;
  for (const MeasuredCollective& row : table) {
    if (row.machine == subject.machine && row.nodes == subject.nodes &&
        row.ranks == subject.ranks && (*subject.setting == 0 || row.setting == subject.setting)) {
      rows.push_back(row);
    }
  }
  return rows;
}

ClusterTopology cluster_of(const Subject& subject) {
  std::string name = subject.cluster;
  if (name.ends_with(".json")) name = kTests + name;
  const ClusterTopology cluster = ClusterTopology::load(name, 0).value();
  if (subject.node_GBps == 0) return cluster;
  return cluster.with_node_network(subject.node_GBps * 1_GBps);
}

std::string percents(const std::optional<double>& error) {
  return error ? fmt::format("{:.0f} %", 100 * *error) : "–";
}

}  // namespace

TEST_CASE("the errors against published nccl-tests tables do not grow") {
  const auto table = read_collective_table(kTests + "validation/nccl_tests.csv").value();
  std::string text =
      "| machine | rows from 1 MiB | below 1 MiB | data sheet | fitted | bandwidth | latency | "
      "sizes left out | ops left out |\n|---|---|---|---|---|---|---|---|---|\n";
  for (const Subject& subject : kSubjects) {
    INFO(subject.name);
    const ClusterTopology cluster = cluster_of(subject);
    const Calibration prior =
        prior_calibration(cluster.gpu(), *find_framework("megatron-core")).value();
    const auto rows = place_collectives(rows_of(subject, table), cluster).value();
    const std::optional<double> sheet = log_mean_error(rows, prior);
    REQUIRE(sheet);
    const CollectiveFit fit = fit_collectives(rows, prior);
    const std::optional<double> after = log_mean_error(rows, fitted(prior, fit));
    const LeftOut left_out = left_out_errors(rows, prior);
    const auto large = std::count_if(rows.begin(), rows.end(),
                                     [](const auto& row) { return row.bytes >= kFitFrom; });
    text += fmt::format("| {} | {} | {} | {} | {} | {:.2f} | {:.2f} | {} | {} |\n", subject.name,
                        large, percents(log_mean_error(rows, prior, 4_KiB, kFitFrom)),
                        percents(sheet), percents(after), fit.bandwidth, fit.latency,
                        percents(left_out.sizes), percents(left_out.kinds));
    CHECK(100 * *sheet <= subject.limits.sheet);
    CHECK(100 * *after <= subject.limits.fitted);
    CHECK(100 * left_out.sizes.value_or(0) <= subject.limits.left_out);
    CHECK(*after <= *sheet);
  }
  const std::string document = read_file(kDocument, 1 << 20).value();
  constexpr std::string_view kBegin = "<!-- table: collective_accuracy_test -->\n";
  const std::size_t begin = document.find(kBegin) + kBegin.size();
  const std::size_t end = document.find("\n\n", begin) + 1;
  if (std::getenv("ECHELON_UPDATE_GOLDENS") != nullptr) {
    REQUIRE(write_file(kDocument, document.substr(0, begin) + text + document.substr(end)).ok());
    return;
  }
  CHECK(document.substr(begin, end - begin) == text);
}

TEST_CASE("no published measurement beats the bound of the data sheet") {
  const auto table = read_collective_table(kTests + "validation/nccl_tests.csv").value();
  for (const Subject& subject : kSubjects) {
    const ClusterTopology cluster = cluster_of(subject);
    const auto rows = place_collectives(rows_of(subject, table), cluster).value();
    for (const PlacedCollective& row : rows) {
      INFO(subject.name << " " << name_of(row.kind) << " " << row.bytes.in(1_MiB) << " MiB");
      CHECK(collective_bound(row.kind, row.bytes, row.network) < row.time);
    }
  }
}

TEST_CASE("every shipped table repeats rows of the published ones") {
  const auto table = read_collective_table(kTests + "validation/nccl_tests.csv").value();
  int clusters = 0;
  for (const std::string& name : cluster_catalog()) {
    const auto shipped = shipped_collective_table(name);
    if (shipped.empty()) continue;
    ++clusters;
    CHECK(place_collectives(shipped, ClusterTopology::load(name, 0).value()).ok());
    for (const MeasuredCollective& row : shipped) {
      double log_sum = 0;
      int found = 0;
      for (const MeasuredCollective& published : table) {
        if (published.machine != row.machine || published.kind != row.kind ||
            published.nodes != row.nodes || published.ranks != row.ranks ||
            published.bytes != row.bytes || published.source != row.source) {
          continue;
        }
        // One source holds a second series in which a plug-in forces a single channel.
        if (published.setting.starts_with("tuner plugin")) continue;
        log_sum += std::log(published.time.in(1_us));
        ++found;
      }
      INFO(name << " " << name_of(row.kind) << " " << row.bytes.in(kByte));
      REQUIRE(found > 0);
      CHECK(row.time.in(1_us) == Approx(std::exp(log_sum / found)).epsilon(1e-4));
    }
  }
  CHECK(clusters == 11);
}

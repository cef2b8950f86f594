// Wirings of nodes as reported by nvidia-smi and NCCL.
#include "topologies/import/wiring.hpp"

#include <algorithm>

#include "core/base/units.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"
#include "topologies/topology.hpp"

using namespace echelon;
using echelon::test::mentions;

namespace {

/// Two sockets with two GPUs each, NVSwitch, a card on the switch of each pair and one for storage.
const std::string kSwitched =
    "\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tNIC2\tCPU Affinity\tNUMA Affinity\tGPU NUMA "
    "ID\x1b[0m\r\n"
    "GPU0\t X \tNV18\tNV18\tNV18\tPXB\tNODE\tSYS\t0-55,112-167\t0\t\tN/A\n"
    "GPU1\tNV18\t X \tNV18\tNV18\tPXB\tNODE\tSYS\t0-55,112-167\t0\t\tN/A\n"
    "GPU2\tNV18\tNV18\t X \tNV18\tSYS\tSYS\tPIX\t56-111\t1\t\tN/A\n"
    "GPU3\tNV18\tNV18\tNV18\t X \tSYS\tSYS\tPIX\t56-111\t1\t\tN/A\n"
    "NIC0\tPXB\tPXB\tSYS\tSYS\t X \tNODE\tSYS\n"
    "\nLegend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n\n"
    "NIC Legend:\n\n  NIC0: mlx5_0\n  NIC1: mlx5_1\n  NIC2: mlx5_4\n";

const std::string kBridged =
    "\tGPU0\tGPU1\tGPU2\tGPU3\n"
    "GPU0\t X \tNV4\tNODE\tSYS\n"
    "GPU1\tNV4\t X \tNODE\tSYS\n"
    "GPU2\tNODE\tNODE\t X \tSYS\n"
    "GPU3\tSYS\tSYS\tSYS\t X \n";

const std::string kDump = R"(<!-- a comment -->
<system version="1">
  <cpu host_hash="0x1" numaid="0" affinity="00ff" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:17:00.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0000:19:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="1" sm="90" rank="1" gdr="1">
          <nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>
        </gpu>
      </pci>
      <pci busid="0000:18:00.0" class="0x020700">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1" gdr="1"/></nic>
      </pci>
    </pci>
  </cpu>
  <cpu host_hash="0x1" numaid="1" affinity="ff00" arch="x86_64" vendor="GenuineIntel">
    <pci busid="0000:9A:00.0" class="0x030200" link_speed="16.0 GT/s PCIe" link_width="16">
      <gpu dev="0" sm="90" rank="0" gdr="1">
        <nvlink target="fffffff:ffff:ff" count="18" tclass="0x068000"/>
      </gpu>
    </pci>
    <nic><net name="eth0" dev="1" speed="10000"/></nic>
  </cpu>
  <cpu host_hash="0x2" numaid="0"><pci busid="0000:01:00.0"><gpu dev="0" sm="90"/></pci></cpu>
</system>
)";

std::string error_of(const Result<NodeWiring>& wiring) {
  REQUIRE_FALSE(wiring.ok());
  CHECK(wiring.error().kind == Error::Kind::input);
  return wiring.error().message();
}
ClusterTopology cluster_of(const std::string& text, const std::string& gpu,
                           std::optional<BytesPerSecond> nic_rate = {}) {
  WiredMachine machine;
  machine.name = "imported";
  machine.gpu = gpu;
  machine.wiring = parse_wiring(text, "a test").value();
  machine.nic_rate = nic_rate;
  return ClusterTopology::parse(description_of(machine).value(), "a test", 0).value();
}

}  // namespace

TEST_CASE("the matrix of nvidia-smi gives switches, sockets and the cards near GPUs") {
  const NodeWiring wiring = parse_wiring(kSwitched, "a test").value();
  REQUIRE(wiring.gpus.size() == 4);
  CHECK(wiring.source == "nvidia-smi topo -m");
  for (const NodeWiring::Gpu& gpu : wiring.gpus) CHECK(gpu.links_to_switch == 18);
  CHECK(wiring.links.empty());
  CHECK(wiring.gpus[0].socket == 0);
  CHECK(wiring.gpus[3].socket == 1);
  CHECK(wiring.gpus[0].pcie_switch == wiring.gpus[1].pcie_switch);
  CHECK(wiring.gpus[1].pcie_switch != wiring.gpus[2].pcie_switch);
  REQUIRE(wiring.nics.size() == 2);  // the storage card is not on a GPU's switch
  CHECK(wiring.nics[0].name == "mlx5_0");
  CHECK(wiring.nics[0].gpus == std::vector<int>{0, 1});
  CHECK(wiring.nics[1].name == "mlx5_4");
  CHECK(wiring.nics[1].gpus == std::vector<int>{2, 3});
}

TEST_CASE("bridges between some GPUs are read, and sockets are derived from SYS") {
  const NodeWiring wiring = parse_wiring(kBridged, "a test").value();
  REQUIRE(wiring.links.size() == 1);
  CHECK(wiring.links[0].a == 0);
  CHECK(wiring.links[0].b == 1);
  CHECK(wiring.links[0].count == 4);
  CHECK(wiring.gpus[0].socket == wiring.gpus[2].socket);
  CHECK(wiring.gpus[0].socket != wiring.gpus[3].socket);
  CHECK_FALSE(wiring.gpus[0].pcie_switch);
}

TEST_CASE("a matrix with blanks is read like one with tabs") {
  std::string blanks = kBridged;
  std::replace(blanks.begin(), blanks.end(), '\t', ' ');
  const NodeWiring wiring = parse_wiring(blanks, "a test").value();
  CHECK(wiring.gpus.size() == 4);
  CHECK(wiring.links.size() == 1);
}

TEST_CASE("NCCL's dump gives links, slots and rates of the first host") {
  const NodeWiring wiring = parse_wiring(kDump, "a test").value();
  REQUIRE(wiring.gpus.size() == 2);
  CHECK(wiring.gpus[0].links_to_switch == 18);
  CHECK_FALSE(wiring.gpus[0].pcie_switch);  // GPU 0 is the second in the file
  CHECK(wiring.gpus[1].pcie_switch.has_value());
  CHECK(wiring.gpus[0].socket != wiring.gpus[1].socket);
  REQUIRE(wiring.gpu_slot);
  CHECK(wiring.gpu_slot->in(1_GBps) == Approx(31.5).epsilon(0.01));  // the slower one
  REQUIRE(wiring.nics.size() == 1);
  CHECK(wiring.nics[0].gpus == std::vector<int>{1});
  CHECK(wiring.nics[0].rate->in(1_GBps) == Approx(50));
}

TEST_CASE("links between GPUs in a dump are counted once") {
  const NodeWiring wiring = parse_wiring(R"(<system version="1"><cpu>
        <pci busid="0000:0A:00.0"><gpu dev="0"><nvlink target="0000:0b:00.0" count="2"/></gpu></pci>
        <pci busid="0000:0b:00.0"><gpu dev="1"><nvlink target="0000:0A:00.0" count="2"/></gpu></pci>
      </cpu></system>)",
                                         "a test")
                                .value();
  REQUIRE(wiring.links.size() == 1);
  CHECK(wiring.links[0].count == 2);
  CHECK(wiring.gpus[0].links_to_switch == 0);
}

TEST_CASE("errors in wirings give the reason and the position") {
  CHECK(mentions(error_of(parse_wiring("", "x.txt")), "x.txt: no matrix of GPUs"));
  CHECK(mentions(error_of(parse_wiring("\tGPU0\tGPU1\nGPU0\t X \tNV4\n", "x")), "1 rows for 2"));
  CHECK(mentions(error_of(parse_wiring("\tGPU0\tGPU1\nGPU0\t X \n", "x")), "a row of GPU0"));
  CHECK(mentions(error_of(parse_wiring("\tGPU0\tGPU1\nGPU0\t X \tFAST\nGPU1\tNV4\t X \n", "x")),
                 "'FAST'"));
  CHECK(mentions(error_of(parse_wiring("<system", "x.xml")), "x.xml line 1"));
  CHECK(mentions(error_of(parse_wiring("<system>\n<cpu>\n</system>", "x.xml")), "line 3"));
  CHECK(mentions(error_of(parse_wiring("<system><cpu numaid=0/></system>", "x")), "quotation"));
  CHECK(mentions(error_of(parse_wiring("<system><cpu numaid=\"0/></system>", "x")), "closing"));
  CHECK(mentions(error_of(parse_wiring("<graphs version=\"1\"/>", "x")), "<graphs>"));
  CHECK(mentions(error_of(parse_wiring("<system><cpu/></system>", "x")), "no <gpu>"));
  CHECK(mentions(error_of(parse_wiring("<system><cpu/></system> more", "x")), "nothing after"));
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "<pci>";
  CHECK(mentions(error_of(parse_wiring(deep, "x")), "at most 64 nested levels"));
}

TEST_CASE("every truncation of a wiring is read or refused") {
  for (const std::string& text : {kSwitched, kBridged, kDump}) {
    for (std::size_t length = 0; length < text.size(); ++length) {
      const Result<NodeWiring> wiring = parse_wiring(text.substr(0, length), "a test");
      CHECK((!wiring.ok() || !wiring->gpus.empty()));
    }
  }
}

TEST_CASE("a wiring is converted to a valid description") {
  const ClusterTopology switched = cluster_of(kSwitched, "h100", 50_GBps);
  CHECK(switched.gpus_per_node() == 4);
  CHECK(switched.node().interconnect == "nvswitch");
  CHECK(switched.node().gpu_link.in(1_GBps) == Approx(450));
  CHECK(switched.node().nics == 2);
  CHECK(switched.node().nic.in(1_GBps) == Approx(50));
  CHECK(cluster_of(kSwitched, "h100").node().nics == 0);  // their rate is unknown
  const ClusterTopology bridged = cluster_of(kBridged, "rtx-3090");
  CHECK(bridged.node().interconnect == "nvlink-bridge");
  CHECK(bridged.machine().link.in(1_GBps) == Approx(56.25));
  CHECK(cluster_of(kDump, "h200").node().nic.in(1_GBps) == Approx(50));
}

TEST_CASE("cards that no GPU is near to are kept, and CPU affinities tell the sockets") {
  // A GB200 tray: four GPUs, two processors, all cards behind the processors.
  const std::string tray =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tmlx5_1\tCPU Affinity\n"
      "GPU0\t X \tNV18\tNV18\tNV18\tSYS\tSYS\t0-71\n"
      "GPU1\tNV18\t X \tNV18\tNV18\tSYS\tSYS\t0-71\n"
      "GPU2\tNV18\tNV18\t X \tNV18\tSYS\tSYS\t72-143\n"
      "GPU3\tNV18\tNV18\tNV18\t X \tSYS\tSYS\t72-143\n";
  const NodeWiring wiring = parse_wiring(tray, "a test").value();
  REQUIRE(wiring.nics.size() == 2);
  CHECK(wiring.nics[1].name == "mlx5_1");
  CHECK(wiring.nics[1].gpus.empty());
  CHECK(wiring.gpus[0].socket == wiring.gpus[1].socket);
  CHECK(wiring.gpus[1].socket != wiring.gpus[2].socket);
  CHECK(wiring.gpus[2].socket == wiring.gpus[3].socket);
  const ClusterTopology cluster = cluster_of(tray, "gb200", 50_GBps);
  CHECK(cluster.node().nics == 2);
  CHECK(cluster.machine().pcie.sockets == 2);
  CHECK(cluster.machine().pcie.c2c);
  CHECK(cluster.node().pcie.in(1_GBps) == Approx(450));
  CHECK(cluster.resized(8).value().group({2, 4}).inter.in(1_GBps) == Approx(25));
  WiredMachine machine;
  machine.gpu = std::string("gb200");
  machine.wiring = wiring;
  machine.nic_rate = 50_GBps;
  CHECK(mentions(description_of(machine).value(), "no card is near a GPU"));
}

TEST_CASE("a Vera Rubin tray is read: 36 links to the switches, C2C to the CPU") {
  const std::string tray =
      "\tGPU0\tGPU1\tGPU2\tGPU3\tmlx5_0\tCPU Affinity\n"
      "GPU0\t X \tNV36\tNV36\tNV36\tSYS\t0-87\n"
      "GPU1\tNV36\t X \tNV36\tNV36\tSYS\t0-87\n"
      "GPU2\tNV36\tNV36\t X \tNV36\tSYS\t88-175\n"
      "GPU3\tNV36\tNV36\tNV36\t X \tSYS\t88-175\n";
  const ClusterTopology cluster = cluster_of(tray, "vr200", 100_GBps);
  CHECK(cluster.node().interconnect == "nvswitch");
  CHECK(cluster.node().gpu_link.in(1_GBps) == Approx(1500));
  CHECK(cluster.machine().pcie.c2c);
  CHECK(cluster.node().pcie.in(1_GBps) == Approx(450));
}

TEST_CASE("the links of AMD's GPUs are read from rocm-smi and from RCCL's dump") {
  const std::string rocm =
      "======================= ROCm System Management Interface =======================\n"
      "=========================== Weight between two GPUs ============================\n"
      "       GPU0         GPU1         GPU2         \n"
      "GPU0   0            15           30           \n"
      "GPU1   15           0            15           \n"
      "GPU2   30           15           0            \n\n"
      "============================ Hops between two GPUs =============================\n"
      "       GPU0         GPU1         GPU2         \n"
      "GPU0   0            1            1            \n"
      "GPU1   1            0            1            \n"
      "GPU2   1            1            0            \n\n"
      "========================== Link Type between two GPUs ==========================\n"
      "       GPU0         GPU1         GPU2         \n"
      "GPU0   0            XGMI         XGMI         \n"
      "GPU1   XGMI         0            XGMI         \n"
      "GPU2   XGMI         XGMI         0            \n\n"
      "================================== Numa Nodes ==================================\n"
      "GPU[0]\t\t: (Topology) Numa Node: 0\nGPU[0]\t\t: (Topology) Numa Affinity: 0\n"
      "GPU[1]\t\t: (Topology) Numa Node: 0\nGPU[1]\t\t: (Topology) Numa Affinity: 0\n"
      "GPU[2]\t\t: (Topology) Numa Node: 1\nGPU[2]\t\t: (Topology) Numa Affinity: 1\n"
      "============================= End of ROCm SMI Log ==============================\n";
  const NodeWiring wiring = parse_wiring(rocm, "a test").value();
  CHECK(wiring.source == "rocm-smi --showtopo");
  REQUIRE(wiring.gpus.size() == 3);
  REQUIRE(wiring.links.size() == 2);  // not between 0 and 2, two hops apart
  CHECK(wiring.links[1].a == 1);
  CHECK(wiring.links[1].b == 2);
  CHECK(wiring.gpus[1].socket == 0);
  CHECK(wiring.gpus[2].socket == 1);
  const ClusterTopology cluster = cluster_of(rocm, "mi300x");
  CHECK(cluster.node().interconnect == "nvlink-mesh");
  CHECK(cluster.machine().link.in(1_GBps) == Approx(64));
  CHECK(cluster.node().pcie.in(1_GBps) == Approx(63));
  CHECK(cluster_of(rocm, "mi250x-gcd").node().pcie.in(1_GBps) == Approx(31.5));
  WiredMachine tray;  // of Helios, whose GPUs no xGMI joins
  tray.gpu = std::string("mi455x");
  tray.wiring = wiring;
  CHECK(mentions(description_of(tray).error().message(), "plan topo show helios"));
  CHECK(mentions(error_of(parse_wiring(rocm.substr(0, rocm.find("GPU2   XGMI")), "x")),
                 "the whole output of `rocm-smi --showtopo`"));
  for (std::size_t length = 0; length < rocm.size(); ++length) {
    const Result<NodeWiring> cut = parse_wiring(rocm.substr(0, length), "a test");
    CHECK((!cut.ok() || !cut->gpus.empty()));
  }
  const NodeWiring dumped = parse_wiring(R"(<system version="2"><cpu>
      <pci busid="0000:0a:00.0"><gpu dev="0"><xgmi target="0000:0b:00.0" count="1"/></gpu></pci>
      <pci busid="0000:0b:00.0"><gpu dev="1"><xgmi target="0000:0a:00.0" count="1"/></gpu></pci>
    </cpu></system>)",
                                         "a test")
                                .value();
  REQUIRE(dumped.links.size() == 1);
  CHECK(dumped.links[0].count == 1);
}

TEST_CASE("other outputs are refused with what to import instead") {
  const std::string log =
      error_of(parse_wiring("node1:19:19 [6] NCCL INFO === System : maxBw 24.0 totalBw 24.0 ===\n"
                            "node1:19:19 [6] NCCL INFO + PCI[24.0] - GPU/0-4e000 (0)\n",
                            "x"));
  CHECK(mentions(log, "NCCL_TOPO_DUMP_FILE=topology.xml"));
  CHECK(mentions(error_of(parse_wiring("CA 'mlx5_0'\n\tCA type: MT4129\n", "x")),
                 "`rocm-smi --showtopo`"));
}

TEST_CASE("SXM modules without NVLinks are reported: topo -mp leaves NVLinks out") {
  WiredMachine machine;
  machine.wiring = parse_wiring("\tGPU0\tGPU1\nGPU0\t X \tNODE\nGPU1\tNODE\t X \n", "x").value();
  machine.gpu = std::string("h100");
  CHECK(mentions(description_of(machine).value(), "`nvidia-smi topo -mp` leaves them out"));
  machine.gpu = std::string("h100-pcie");
  CHECK_FALSE(mentions(description_of(machine).value(), "topo -mp"));
}

TEST_CASE("a GPU outside the catalog is described by the properties that CUDA reports") {
  GpuFacts facts;
  facts.name = "NVIDIA Something New";
  facts.memory = 24_GiB;
  facts.sms = 100;
  facts.compute_capability = 8.0;
  facts.clock_mhz = 1000;
  facts.memory_clock_mhz = 1000;
  facts.memory_bits = 4096;
  WiredMachine machine;
  machine.name = "m";
  machine.gpu = facts;
  machine.wiring.source = "CUDA";
  machine.wiring.gpus.resize(1);
  machine.measured_copies = 24_GBps;
  const auto cluster = ClusterTopology::parse(description_of(machine).value(), "a test", 0).value();
  CHECK(cluster.gpu().hbm.in(1_GBps) == Approx(1024));
  CHECK(cluster.gpu().peak(Dtype::bf16).in(FlopsPerSecond{1e12}) == Approx(204.8));
  CHECK(cluster.gpu().memory == 24_GiB);
  CHECK(cluster.node().pcie.in(1_GBps) == Approx(31.5));  // the slot whose copies reach 24 GB/s
  CHECK(catalog_gpu_of_driver("NVIDIA H200") == "h200-sxm-141gb");
  CHECK(catalog_gpu_of_driver("Tesla T4") == "t4");
  CHECK_FALSE(catalog_gpu_of_driver(facts.name));
  CHECK(catalog_gpu_of_driver("NVIDIA H100 80GB HBM3") == "h100-sxm5-80gb");
  // A card's own memory, and the catalog's peaks.
  facts.name = "NVIDIA H100 80GB HBM3";
  facts.memory = Bytes{84'929'347'584};
  machine.gpu = facts;
  const auto h100 = ClusterTopology::parse(description_of(machine).value(), "a test", 0).value();
  CHECK(h100.gpu().memory.in(1_GiB) == Approx(79.0966).epsilon(1e-5));
  CHECK(h100.gpu().hbm.in(1_GBps) == Approx(3350));
  CHECK(h100.gpu().peak(Dtype::bf16).in(FlopsPerSecond{1e12}) == Approx(989));
  machine.gpu = std::string("h300");
  CHECK_FALSE(description_of(machine).ok());
}

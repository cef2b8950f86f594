#include "topologies/description/catalog.hpp"

#include <algorithm>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/topologies/support.hpp"

using namespace echelon;

TEST_CASE("every cluster of the catalog loads at its own size, at one GPU, and at four units") {
  for (const std::string& name : cluster_catalog()) {
    INFO(name);
    const ClusterTopology own = cluster_of(name, 0);
    CHECK(own.name() == name);
    CHECK_FALSE(own.description().empty());
    CHECK(cluster_of(name, 1).group({1, 1}).domains == 1);
    const ClusterTopology four = cluster_of(name, 4 * own.gpus());
    CHECK(four.gpus() == 4 * own.gpus());
    const GroupNetwork group = four.group({4, own.gpus()});
    CHECK(group.inter > BytesPerSecond{});
    CHECK(group.inter_latency > Seconds{});
  }
}

TEST_CASE("the list of GPUs has one entry per GPU of the catalog") {
  const std::vector<GpuSummary> gpus = list_gpus();
  CHECK(gpus.size() == 55);
  CHECK(gpus.size() == gpu_catalog().size());
}

TEST_CASE("the numbers of a description are listed in the order of the file") {
  const Result<MachineDescription> machine = load_machine("aws-p4d");
  REQUIRE(machine.ok());
  const auto at = [&](const std::string& name) {
    return std::ranges::find(machine->facts, name, &Fact::name);
  };
  REQUIRE(at("gpu.hbm") != machine->facts.end());
  CHECK(at("gpu.hbm")->value == "1.555");
  CHECK(at("gpu.hbm")->unit == "TB/s");
  REQUIRE(at("node.nics.rate") != machine->facts.end());
  CHECK(at("node.nics.rate")->value == "100");
  check_contains(at("node.nics.rate")->source, {"p4d-24xl-topo.xml"});
  CHECK(at("gpu.hbm") < at("node.nics.rate"));
  CHECK(at("gpu.launch")->assumed);
  CHECK_FALSE(at("gpu.hbm")->assumed);
}

TEST_CASE("the catalog contains the common training machines") {
  const std::vector<std::string> names = cluster_catalog();
  for (const std::string name :
       {"dgx-v100",   "dgx-a100-40gb", "dgx-a100",    "dgx-h100",     "dgx-h200",  "dgx-b200",
        "dgx-b300",   "gb200-nvl72",   "gb300-nvl72", "h100-pcie",    "a100-pcie", "l40s",
        "rtx-4090",   "aws-p3dn",      "aws-p4d",     "aws-p5",       "aws-p5en",  "azure-ndv4",
        "azure-ndv5", "gcp-a3-high",   "gcp-a3-mega", "gcp-a3-ultra", "gcp-a4",    "selene",
        "perlmutter", "alps",          "jupiter",     "isambard-ai",  "leonardo",  "marenostrum5",
        "jean-zay",   "lumi",          "frontier",    "mi300x",       "mi325x",    "mi355x",
        "rtx-3090",   "rtx-5090",      "h100-nvl",    "dgx-spark",    "aws-p5e",   "aws-p6-b200",
        "vr-nvl72",   "helios"}) {
    INFO(name);
    CHECK(std::find(names.begin(), names.end(), name) != names.end());
  }
}

TEST_CASE("names and aliases are found in any case, and every name is unique") {
  CHECK(cluster_of("hgx-h100", 8).name() == "dgx-h100");
  CHECK(cluster_of("DGX-H100", 8).name() == "dgx-h100");
  CHECK(cluster_of("p4d.24xlarge", 8).name() == "aws-p4d");
  CHECK(cluster_of("p6-b200.48xlarge", 8).name() == "aws-p6-b200");
  CHECK(cluster_of("Clariden", 8).name() == "alps");
  CHECK(cluster_of("LUMI-G", 8).name() == "lumi");
  CHECK(cluster_of("MI300X", 8).name() == "mi300x");
  CHECK(cluster_of("VR200", 72).name() == "vr-nvl72");
  CHECK(cluster_of("Vera Rubin NVL72", 72).name() == "vr-nvl72");
  CHECK(cluster_of("MI455X", 72).name() == "helios");
  std::set<std::string> seen;
  for (const std::string& name : cluster_catalog()) {
    CHECK(seen.insert(name).second);
    const Result<MachineDescription> machine = load_machine(name);
    for (const std::string& alias : machine->aliases) CHECK(seen.insert(alias).second);
  }
  seen.clear();
  for (const std::string& name : gpu_catalog()) {
    CHECK(seen.insert(name).second);
    const Result<GpuDescription> gpu = load_gpu(name, "test");
    for (const std::string& alias : gpu->aliases) {
      INFO(alias);
      CHECK(seen.insert(alias).second);
    }
  }
}

TEST_CASE("every number of the catalog has a source") {
  for (const std::string& name : cluster_catalog()) {
    const Result<MachineDescription> machine = load_machine(name);
    for (const Fact& fact : machine->facts) {
      INFO(name << " " << fact.name);
      CHECK_FALSE(fact.source.empty());
    }
  }
  for (const std::string& name : gpu_catalog()) {
    const Result<GpuDescription> gpu = load_gpu(name, "test");
    for (const Fact& fact : gpu->facts) {
      INFO(name << " " << fact.name);
      CHECK_FALSE(fact.source.empty());
    }
  }
}

TEST_CASE("the catalog states the kind of NICs of all machines but typical servers") {
  const auto kind_of = [](const std::string& name) { return cluster_of(name, 0).node().nic_kind; };
  for (const std::string& name : cluster_catalog()) {
    INFO(name);
    CHECK((kind_of(name) || cluster_of(name, 0).description().starts_with("Typical server")));
    const bool plain = name == "aws-p3" || name == "aws-p3-x4" || name == "oci-a10" ||
                       name == "oci-v100" || (name.ends_with("-x1") && name != "aws-p5-x1");
    if (name.starts_with("aws-"))
      CHECK(kind_of(name) == (plain ? NicKind::ethernet : NicKind::efa));
    if (name.starts_with("azure-nd")) CHECK(kind_of(name) == NicKind::infiniband);
    if (name.starts_with("oci-")) {
      CHECK(kind_of(name) == (plain ? NicKind::ethernet : NicKind::roce));
    }
  }
  CHECK(kind_of("gcp-a3-mega") == NicKind::tcpx);
  CHECK(kind_of("gcp-a2-mega") == NicKind::ethernet);
  CHECK(kind_of("lumi") == NicKind::slingshot);
  CHECK(kind_of("helios") == NicKind::ethernet);  // Pensando: kernels for mlx5 are of no use
}

TEST_CASE("an H100 has the numbers of its data sheet") {
  const GpuSpec gpu = cluster_of("dgx-h100", 8).gpu();
  CHECK(gpu.name == "H100-SXM5-80GB");
  CHECK(gpu.hbm.in(1_GBps) == Approx(3350));
  CHECK(gpu.peak(Dtype::bf16).in(1_TFLOPS) == Approx(989));
  CHECK(gpu.peak(Dtype::fp16).in(1_TFLOPS) == Approx(989));
  CHECK(gpu.peak(Dtype::fp8).in(1_TFLOPS) == Approx(1979));
  CHECK(gpu.peak(Dtype::fp32).in(1_TFLOPS) == Approx(494.5));  // tf32 tensor cores
  CHECK(gpu.sms == 132);
  CHECK(gpu.memory.in(1_GiB) > 79);
  CHECK(gpu.memory.in(1_GiB) < 80);
}

TEST_CASE("GPUs of late 2026 have the vendors' latest dense numbers") {
  const GpuSpec rubin = cluster_of("vr200", 72).gpu();
  CHECK(rubin.hbm.in(1_GBps) == Approx(19'200));  // 22 TB/s were announced
  CHECK(rubin.peak(Dtype::bf16).in(1_TFLOPS) == Approx(4000));
  CHECK(rubin.peak(Dtype::fp8).in(1_TFLOPS) == Approx(17'500));
  CHECK(rubin.compute_capability == Approx(10.7));
  const GpuSpec mi455x = cluster_of("mi455x", 72).gpu();
  CHECK(mi455x.memory.in(1_GiB) == Approx(432).epsilon(0.001));
  CHECK(mi455x.hbm.in(1_GBps) == Approx(23'300));
  CHECK(mi455x.peak(Dtype::bf16).in(1_TFLOPS) == Approx(5033));
  CHECK(mi455x.peak(Dtype::fp8).in(1_TFLOPS) == Approx(20'130));
  CHECK(mi455x.compute_capability == 0);
}

TEST_CASE("a GPU without a kind of unit has peak zero for it") {
  const GpuSpec v100 = load_gpu("v100", "test")->spec;
  CHECK(v100.peak(Dtype::bf16) == FlopsPerSecond{});
  CHECK(v100.peak(Dtype::fp16).in(1_TFLOPS) == Approx(125));
  CHECK(v100.peak(Dtype::fp32).in(1_TFLOPS) == Approx(15.7));
  CHECK(load_gpu("a100", "test")->spec.peak(Dtype::fp8) == FlopsPerSecond{});
}

TEST_CASE("no GPU offers more memory than its data sheet prints") {
  for (const auto& [name, gigabytes] :
       std::vector<std::pair<std::string, double>>{{"v100", 32},
                                                   {"a100-40gb", 40},
                                                   {"a100", 80},
                                                   {"h100", 80},
                                                   {"h200", 141},
                                                   {"b200", 180},
                                                   {"b300", 288},
                                                   {"gb200", 186},
                                                   {"l40s", 48},
                                                   {"rtx4090", 24},
                                                   {"a100-64gb", 64},
                                                   {"h100-64gb", 64},
                                                   {"gh200", 96},
                                                   {"rtx-5090", 32},
                                                   {"rtx-pro-6000", 96},
                                                   {"rtx-a6000", 48},
                                                   {"a10g", 24},
                                                   {"mi300x", 192},
                                                   {"mi250x-gcd", 64},
                                                   {"mi250x", 128},
                                                   {"t4", 16},
                                                   {"l4", 24},
                                                   {"v100-pcie", 16},
                                                   {"v100-sxm2-16gb", 16},
                                                   {"a30", 24},
                                                   {"a800", 80},
                                                   {"v100-pcie-32", 32},
                                                   {"a100-pcie-40", 40},
                                                   {"h20", 102},
                                                   {"h200-nvl", 141},
                                                   {"gh200-144", 144 * 1.074},
                                                   {"l40", 48},
                                                   {"4080", 16},
                                                   {"5080", 16},
                                                   {"a5000", 24},
                                                   {"2080ti", 11.5},
                                                   {"mi210", 64.1},
                                                   {"mi300a", 128},
                                                   {"mi350x", 288}}) {
    INFO(name);
    const double gib = load_gpu(name, "test")->spec.memory.in(1_GiB);
    CHECK(gib < gigabytes);
    CHECK(gib > 0.9 * gigabytes);
  }
}

TEST_CASE("GeForce cards have half the rate in 16 bit with accumulation in fp32") {
  const auto per_sm_and_clock = [](const char* name) {
    const GpuSpec gpu = load_gpu(name, "test")->spec;
    return gpu.peak(Dtype::bf16).in(1_TFLOPS) * 1e6 / gpu.sms / gpu.boost_mhz;  // FLOPs
  };
  CHECK(per_sm_and_clock("rtx-4090") == Approx(512).epsilon(0.01));
  CHECK(per_sm_and_clock("rtx-5090") == Approx(512).epsilon(0.01));
  CHECK(per_sm_and_clock("rtx-6000-ada") == Approx(1024).epsilon(0.01));
  CHECK(per_sm_and_clock("rtx-pro-6000") == Approx(1024).epsilon(0.01));
  CHECK(per_sm_and_clock("rtx-a6000") == Approx(1024).epsilon(0.01));
  // A peak is not below what cuBLASLt's products reach: 254 TFLOP/s of an RTX 5090. In fp8 cards of
  // Ada have half the rate too, and reach 354 (RTX 4090), those of Blackwell 774 (RTX 5090).
  CHECK(load_gpu("rtx-5090", "test")->spec.peak(Dtype::bf16) > 253_TFLOPS);
  CHECK(load_gpu("rtx-4090", "test")->spec.peak(Dtype::fp8) < 360_TFLOPS);
  CHECK(load_gpu("rtx-5090", "test")->spec.peak(Dtype::fp8) > 774_TFLOPS);
}

TEST_CASE("16-bit peaks are those of the architecture, its SMs and its clock") {
  // FLOPs per SM (or CU) and cycle of the data sheets' architectures.
  for (const auto& [name, each] :
       std::vector<std::pair<std::string, double>>{{"v100", 1024},      {"v100-sxm2-16gb", 1024},
                                                   {"v100-pcie", 1024}, {"v100-pcie-32", 1024},
                                                   {"t4", 1024},        {"2080ti", 512},
                                                   {"a100", 2048},      {"a100-pcie-40", 2048},
                                                   {"a800", 2048},      {"a30", 2048},
                                                   {"h100", 4096},      {"gh200-144", 4096},
                                                   {"a5000", 1024},     {"l4", 1024},
                                                   {"l40", 512},        {"l40s", 1024},
                                                   {"4080", 512},       {"5080", 512},
                                                   {"mi210", 1024},     {"mi250x", 1024},
                                                   {"mi300a", 2048},    {"mi300x", 2048},
                                                   {"mi325x", 2048},    {"mi350x", 4096},
                                                   {"mi355x", 4096}}) {
    INFO(name);
    const GpuSpec gpu = load_gpu(name, "test")->spec;
    CHECK(gpu.peak(Dtype::fp16).in(1_TFLOPS) * 1e6 / gpu.sms / gpu.boost_mhz ==
          Approx(each).epsilon(0.02));
  }
}

TEST_CASE("instances are found by the names that their clouds give them") {
  for (const auto& [name, gpu, gpus, memory] :
       std::vector<std::tuple<std::string, std::string, int, double>>{
           {"p3.16xlarge", "V100-SXM2-16GB", 8, 488},
           {"p3.8xlarge", "V100-SXM2-16GB", 4, 244},
           {"g4dn.12xlarge", "T4", 4, 192},
           {"g5.12xlarge", "A10G", 4, 192},
           {"g5.xlarge", "A10G", 1, 16},
           {"g6.48xlarge", "L4", 8, 768},
           {"g6e.12xlarge", "L40S", 4, 384},
           {"p5.4xlarge", "H100-SXM5-80GB", 1, 256},
           {"a2-highgpu-8g", "A100-SXM4-40GB", 8, 680},
           {"a2-ultragpu-4g", "A100-SXM4-80GB", 4, 680},
           {"a3-highgpu-2g", "H100-SXM5-80GB", 2, 468},
           {"g2-standard-96", "L4", 8, 384},
           {"Standard_ND96isr_H100_v5", "H100-SXM5-80GB", 8, 1900},
           {"Standard_ND40rs_v2", "V100-SXM2-32GB", 8, 721.6},
           {"Standard_NC96ads_A100_v4", "A100-PCIe-80GB", 4, 944.9},
           {"NC80adis_H100_v5", "H100-NVL-94GB", 2, 687.2},
           {"Standard_NC64as_T4_v3", "T4", 4, 472.4},
           {"BM.GPU.A100-v2.8", "A100-SXM4-80GB", 8, 2000},
           {"BM.GPU.L40S.4", "L40S", 4, 1024},
           {"gd-8xh100ib-i128", "H100-SXM5-80GB", 8, 2000},
           {"gpu_8x_h100_sxm5", "H100-SXM5-80GB", 8, 2000},
           {"gpu_1x_gh200", "GH200-96", 1, 480}}) {
    INFO(name);
    const ClusterTopology cluster = cluster_of(name, 0);
    CHECK(cluster.gpu().name == gpu);
    CHECK(cluster.gpus() == gpus);
    CHECK(cluster.node().cpu_memory.in(1_GB) == Approx(memory).epsilon(0.01));
  }
}

TEST_CASE("in AWS's virtual machines of A10G and L4 the GPUs do not reach each other") {
  for (const char* name : {"g5.48xlarge", "g5.12xlarge", "g6.48xlarge", "g6.12xlarge"}) {
    INFO(name);
    const ClusterTopology cluster = cluster_of(name, 0);
    CHECK_FALSE(cluster.machine().pcie.peer_access);
    CHECK(cluster.group({4, 1}).intra.in(1_GBps) == Approx(0.5 * 31.5));
  }
}

TEST_CASE("nodes of 4 GPUs without switches join every pair by the same number of links") {
  for (const auto& [name, per_pair, per_gpu] :
       std::vector<std::tuple<std::string, double, double>>{{"perlmutter", 100, 300},
                                                            {"leonardo", 100, 300},
                                                            {"alps", 150, 450},
                                                            {"jupiter", 150, 450},
                                                            {"marenostrum5", 150, 450}}) {
    INFO(name);
    const ClusterTopology node = cluster_of(name, 4);
    CHECK(node.group({4, 1}).intra.in(1_GBps) == Approx(per_gpu));
    CHECK(node.group({2, 1}).intra.in(1_GBps) == Approx(per_pair));
    CHECK(node.group({2, 2}).intra.in(1_GBps) == Approx(per_pair));
  }
}

TEST_CASE("the dies of an MI250X are GPUs of their own") {
  const ClusterTopology node = cluster_of("frontier", 8);
  CHECK(node.gpu().memory.in(1_GiB) == Approx(64).epsilon(0.01));
  CHECK(node.gpu().peak(Dtype::bf16).in(1_TFLOPS) == Approx(383.0 / 2));
  CHECK(node.group({2, 1}).intra.in(1_GBps) == Approx(200));  // four links inside the module
  const GroupNetwork two_nodes = cluster_of("frontier", 16).group({2, 8});
  CHECK(two_nodes.inter.in(1_GBps) == Approx(12.5));  // a die's share of 4 x 200 Gb/s of 8
}

TEST_CASE("a GPU outside the catalog needs only its data-sheet numbers") {
  const ClusterTopology box = cluster_of(machine_path("lab-box"), 4);
  CHECK(box.gpu().name == "X100");
  CHECK(box.gpu().peak(Dtype::bf16).in(1_TFLOPS) == Approx(200));
  CHECK(box.gpu().peak(Dtype::fp16).in(1_TFLOPS) == Approx(200));
  CHECK(box.gpu().fp32.in(1_TFLOPS) == Approx(12.5));
  CHECK(box.gpu().launch.in(1_us) == Approx(4));
  const Result<MachineDescription> machine = load_machine(machine_path("lab-box"));
  REQUIRE(machine.ok());
  int assumed = 0;
  for (const Fact& fact : machine->facts) assumed += fact.assumed ? 1 : 0;
  CHECK(assumed >= 5);  // fp32, boost, l2, launch, compute capability
}

TEST_CASE("names of the catalog match in any case, with any blanks and dashes") {
  for (const char* name :
       {"RTX 4090", "rtx-4090", "RTX4090", "Rtx_4090", "NVIDIA GeForce RTX 4090"}) {
    CAPTURE(name);
    const Result<GpuDescription> gpu = load_gpu(name, "test");
    REQUIRE(gpu.ok());
    CHECK(gpu->spec.name == "RTX 4090");
  }
  CHECK(load_machine("DGX H100").ok());
  CHECK_FALSE(load_gpu("", "test").ok());
  CHECK_FALSE(load_gpu("- -", "test").ok());
  // The name inside a description finds that description.
  for (const std::string& name : gpu_catalog()) {
    CAPTURE(name);
    const std::string own = load_gpu(name, "test")->spec.name;
    CHECK(load_gpu(own, "test")->spec.name == own);
  }
}

TEST_CASE("the error for an unknown GPU name suggests the nearest") {
  const Result<GpuDescription> gpu = load_gpu("h100-smx", "my.json at /gpu");
  REQUIRE_FALSE(gpu.ok());
  check_contains(gpu.error().message(), {"did you mean 'h100-sxm'?"});
  check_contains(gpu.error().message(), {"mi300x"});
}

TEST_CASE("only published prices are in the catalog") {
  CHECK(cluster_of("dgx-h100", 8).price_per_gpu_hour()->in(Dollars{1}) == Approx(2.25));
  CHECK(cluster_of("a100-pcie", 8).price_per_gpu_hour()->in(Dollars{1}) == Approx(1.35));
  CHECK_FALSE(cluster_of("dgx-a100", 8).price_per_gpu_hour().has_value());
}

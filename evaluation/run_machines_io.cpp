#include "core/base/embedded.hpp"
#include "core/base/expects.hpp"
#include "evaluation/run_machines.hpp"
#include "topologies/description/catalog.hpp"
#include "topologies/description/quantity_io.hpp"

namespace echelon {

namespace {

constexpr NumberRule kMachineLink{Dimension::bandwidth, 1e6, 1e13};

RunMachine read_run_machine(Document& document, const Json& object, const std::string& at) {
  Section in(object, document.where(), at);
  RunMachine machine;
  machine.name = in.reader.string("name");
  const Json* gpu = in.reader.member("gpu");
  if (gpu != nullptr && gpu->is_string()) {
    machine.catalog_gpu = gpu->get<std::string>();
    const Result<GpuDescription> known = load_gpu(machine.catalog_gpu, in.at("gpu"));
    if (known) machine.gpu = known->spec;
    if (!known) document.keep(Status(known.error()));
  } else if (gpu != nullptr) {
    machine.gpu = read_gpu(document, *gpu, in.at("gpu")).spec;
  }
  if (const auto rate = document.optional_number(in, "nvlink", kMachineLink)) {
    machine.nvlink = BytesPerSecond{*rate};
  }
  machine.pcie = BytesPerSecond{document.number(in, "pcie", kMachineLink)};
  machine.nic = BytesPerSecond{document.number(in, "nic", kMachineLink)};
  machine.nodes_per_domain = document.count_or(in, "nodes_per_domain", 1, kMaxGpusPerDomain,
                                               {1, "", "one node is one NVLink domain"});
  if (const Json* smaller = in.reader.member("smaller")) {
    Section other(*smaller, document.where(), in.at("smaller"));
    const std::string name = other.reader.string("name");
    machine.smaller =
        SmallerGpu{name, Bytes{document.number(other, "memory", {Dimension::bytes, 1e6, 1e15})}};
    document.keep(other.reader.finish());
  }
  document.keep(in.reader.finish());
  return machine;
}

std::vector<RunMachine> read_run_machines() {
  const EmbeddedFile file = embedded_run_machines().front();
  const Result<Json> parsed = parse_json(file.content, file.name);
  EXPECTS(parsed.ok(), parsed.ok() ? "" : parsed.error().message());
  Document document{"evaluation/catalog/run_machines.json", ""};
  std::vector<RunMachine> machines;
  const Json& list = parsed->at("machines");
  for (std::size_t i = 0; i < list.size(); ++i) {
    machines.push_back(read_run_machine(document, list[i], "/machines/" + std::to_string(i)));
  }
  EXPECTS(!document.error(), document.error() ? document.error()->message() : "");
  return machines;
}

}  // namespace

const std::vector<RunMachine>& run_machines() {
  static const std::vector<RunMachine> all = read_run_machines();
  return all;
}

}  // namespace echelon

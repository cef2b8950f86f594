// The "node" of a cluster description. Included only by *_io.cpp.
#pragma once

#include "topologies/description/description.hpp"
#include "topologies/description/quantity_io.hpp"

namespace echelon {

/// Reads "node" into `machine` (node, interconnect, links, pcie, nics). Errors: a link, switch or
/// NIC with a GPU that does not exist; a NIC without GPUs, or next to GPUs of two sockets; a GPU
/// under two switches; a mesh that does not connect all GPUs.
void read_node(Document& document, const Json& object, MachineDescription& machine);

}  // namespace echelon

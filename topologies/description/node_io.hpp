// The "node" of a cluster description. Included only by *_io.cpp.
#pragma once

#include "topologies/description/description.hpp"
#include "topologies/description/quantity_io.hpp"

namespace echelon {

/// Reads "node" into `machine` (node, interconnect, links, pcie, nics). Errors: a link, switch or
/// NIC that names a GPU the node does not have; a NIC beside no GPU, or beside GPUs of two sockets;
/// a GPU beneath two switches; a mesh that does not connect every GPU.
void read_node(Document& document, const Json& object, MachineDescription& machine);

}  // namespace echelon

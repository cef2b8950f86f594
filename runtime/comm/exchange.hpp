// Short texts from every member of a group to every other.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/communicator.hpp"

namespace echelon {

/// Everybody's text, by member. One all-reduce if all are empty.
[[nodiscard]] std::vector<std::string> exchange(Communicator& all, const std::string& own);

}  // namespace echelon

// How a search is watched and stopped.
#pragma once

#include <functional>

namespace echelon {

/// Called now and then, between finalists too, with the share done in [0, 1]; false: stop early.
using Progress = std::function<bool(double)>;

}  // namespace echelon

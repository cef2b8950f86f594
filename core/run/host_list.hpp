// Host lists in Slurm's format: "n[1-2,07],login".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace echelon {

/// The hosts of a list, in its order. Names are separated by commas; each may contain any number of
/// brackets with numbers and ranges. Numbers keep their leading zeros: "gpu-[008-010]" is gpu-008,
/// gpu-009, gpu-010; "r[1-2]n[1-2]" is r1n1, r1n2, r2n1, r2n2.
/// Source: Slurm's `scontrol show hostnames`. Errors name `where`: an empty list or name,
/// unbalanced brackets, an invalid range, more than `max_hosts` hosts.
[[nodiscard]] Result<std::vector<std::string>> expand_host_list(std::string_view list,
                                                                std::string_view where,
                                                                std::size_t max_hosts = 1 << 17);

}  // namespace echelon

// Host lists as Slurm writes them: "n[1-2,07],login".
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.hpp"

namespace echelon {

/// The hosts of a list, in its order: names behind commas, each with any number of brackets that
/// hold numbers and ranges. Numbers keep their leading zeros: "gpu-[008-010]" is gpu-008, gpu-009,
/// gpu-010; "r[1-2]n[1-2]" is r1n1, r1n2, r2n1, r2n2.
/// Source: Slurm's `scontrol show hostnames`. Errors name `where`: an empty list or name, brackets
/// that do not match, a range that is no range, more than `most` hosts.
[[nodiscard]] Result<std::vector<std::string>> expand_host_list(std::string_view list,
                                                                std::string_view where,
                                                                std::size_t most = 1 << 17);

}  // namespace echelon

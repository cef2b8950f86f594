// The measured goodput within a run report.
#pragma once

#include "core/json/json_io.hpp"
#include "core/run/run_goodput.hpp"

namespace echelon {

[[nodiscard]] Json goodput_json(const MeasuredGoodput& goodput);
[[nodiscard]] Status read_goodput(const Json& object, const std::string& where,
                                  MeasuredGoodput& goodput);

}  // namespace echelon

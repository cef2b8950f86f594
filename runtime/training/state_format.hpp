// The element types in which a run of number format T keeps and writes its state.
#pragma once

#include <type_traits>

#include "runtime/comm/element.hpp"
#include "runtime/io/weights/checkpoint.hpp"

namespace echelon {

/// Masters are kept besides weights.
template <class T>
constexpr bool kHasMaster = !std::is_same_v<T, Wide<T>>;

template <class T>
StateFormat format_of() {
  StateFormat format;
  format.weight = Number<T>::kElement;
  if (kHasMaster<T>) format.master = Number<Wide<T>>::kElement;
  format.moment = Number<Wide<T>>::kElement;
  return format;
}

}  // namespace echelon

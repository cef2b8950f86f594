// ModuleSet: some of the parts of a layer that a framework's option names.
#pragma once

#include <compare>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/result.hpp"

namespace echelon {

/// Of an enumeration `Module` with name_of(Module) and modules_of(Module), which returns all.
template <class Module>
class ModuleSet {
 public:
  using Element = Module;
  constexpr ModuleSet() = default;
  constexpr ModuleSet(std::initializer_list<Module> modules) {
    for (const Module module : modules) insert(module);
  }
  constexpr void insert(Module module) { bits_ = bits_ | bit_of(module); }
  constexpr void erase(Module module) { bits_ = bits_ & ~bit_of(module); }
  [[nodiscard]] constexpr bool contains(Module module) const {
    return (bits_ & bit_of(module)) != 0;
  }
  [[nodiscard]] constexpr bool intersects(const ModuleSet& other) const {
    return (bits_ & other.bits_) != 0;
  }
  [[nodiscard]] constexpr bool empty() const { return bits_ == 0; }
  constexpr auto operator<=>(const ModuleSet&) const = default;

 private:
  static constexpr unsigned bit_of(Module module) { return 1U << static_cast<unsigned>(module); }
  unsigned bits_ = 0;
};

template <class Set>
concept module_set = requires {
  typename Set::Element;
}
&&std::is_same_v<Set, ModuleSet<typename Set::Element>>;

/// "layernorm,moe_act" in the order of the enumeration; "" for none.
template <class Module>
[[nodiscard]] std::string text_of(const ModuleSet<Module>& modules) {
  std::string text;
  for (const Module module : modules_of(Module{})) {
    if (!modules.contains(module)) continue;
    text += (text.empty() ? "" : ",") + std::string(name_of(module));
  }
  return text;
}

/// Places in `known` of the names in `text`, with commas between them. An error names the one that
/// is none of them, a module `what`, and all that are.
[[nodiscard]] Result<std::vector<std::size_t>> parse_module_names(
    std::string_view text, std::string_view where, std::span<const std::string> known,
    std::string_view what);

/// The same as a set.
template <class Module>
[[nodiscard]] Result<ModuleSet<Module>> parse_modules(std::string_view text, std::string_view where,
                                                      std::string_view what) {
  std::vector<std::string> known;
  for (const Module module : modules_of(Module{})) known.emplace_back(name_of(module));
  const Result<std::vector<std::size_t>> named = parse_module_names(text, where, known, what);
  if (!named) return named.error();
  ModuleSet<Module> out;
  for (const std::size_t at : *named) out.insert(modules_of(Module{})[at]);
  return out;
}

}  // namespace echelon

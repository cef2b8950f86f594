#include "core/json/document_kind_io.hpp"

#include <fmt/format.h>

#include "core/base/text.hpp"

namespace echelon {

namespace {

struct KnownKind {
  std::string_view what;
  std::string_view taken_by;
};

bool has_text(const Json& document, std::string_view key, std::string_view begin) {
  const auto at = document.find(std::string(key));
  return at != document.end() && at->is_string() &&
         at->get_ref<const std::string&>().starts_with(begin);
}

/// The kind by its marks; nothing of the wanted kind or of none.
KnownKind known_kind(const Json& document, DocumentKind wanted) {
  const auto has = [&](const char* key) { return document.contains(key); };
  if (has_text(document, "format", "echelon-plan")) {
    return {"a plan file", "plan predict FILE, plan explain FILE or plan run FILE takes it"};
  }
  if (has_text(document, "format", "echelon-session")) {
    return {"a session of the window", "plan gui FILE takes it"};
  }
  if (has_text(document, "format", "echelon-run"))
    return {"a run report", "plan fit FILE takes it"};
  if (wanted != DocumentKind::calibration && has_text(document, "kind", "calibration")) {
    return {"a calibration file", "--calibration FILE takes it"};
  }
  if (has("model_type") || has("architectures")) {
    return {"a HuggingFace configuration of a model", "--model FILE takes it"};
  }
  if (has("hidden") && has("layers")) return {"a model file", "--model FILE takes it"};
  if (wanted != DocumentKind::cluster && has("gpu") && has("node")) {
    return {"the description of a cluster", "--cluster FILE takes it"};
  }
  return {};
}

std::string_view wanted_file(DocumentKind kind) {
  return kind == DocumentKind::cluster
             ? "the description of a cluster, an object with gpu and node "
               "(docs/topology-format.md)"
             : "a calibration file, as plan calibrate or plan fit writes it";
}

std::string kind_of_value(const Json& value) {
  if (value.is_array()) return "a list";
  if (value.is_string()) return "a text in quotes";
  return printable(value.dump().substr(0, 40));
}

}  // namespace

Status check_kind(const Json& document, std::string_view where, DocumentKind wanted) {
  if (!document.is_object()) {
    return input_error(std::string(where), kind_of_value(document),
                       std::string(wanted_file(wanted)));
  }
  const KnownKind found = known_kind(document, wanted);
  if (found.what.empty()) return Done{};
  return input_error(std::string(where), std::string(found.what), std::string(wanted_file(wanted)),
                     std::string(found.taken_by));
}

}  // namespace echelon

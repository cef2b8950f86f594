// The way through the program: arguments, settings, one verb, its output.
#include <fmt/format.h>

#include <array>
#include <exception>
#include <new>

#include "cli/help.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/version.hpp"

namespace echelon::cli {

namespace {

using VerbFunction = Result<Outcome> (*)(const Invocation&);
struct Entry {
  std::string_view name;
  VerbFunction function;
};
constexpr std::array<Entry, 19> kFunctions = {{{"search", search_verb},
                                               {"predict", predict_verb},
                                               {"explain", explain_verb},
                                               {"compare", compare_verb},
                                               {"validate", validate_verb},
                                               {"fit", fit_verb},
                                               {"run", run_verb},
                                               {"calibrate", calibrate_verb},
                                               {"gui", gui_verb},
                                               {"topo list", topo_list_verb},
                                               {"topo show", topo_show_verb},
                                               {"topo check", topo_check_verb},
                                               {"topo import", topo_import_verb},
                                               {"topo collectives", topo_collectives_verb},
                                               {"models", models_verb},
                                               {"doctor", doctor_verb},
                                               {"completion", completion_verb},
                                               {"man", man_verb},
                                               {"help", help_verb}}};

VerbFunction function_of(const Verb& verb) {
  for (const Entry& entry : kFunctions) {
    if (entry.name == verb.name) return entry.function;
  }
  EXPECTS(false, "a verb without a function");
  return nullptr;
}

std::string version_text() {
  return fmt::format("plan {} ({})\n{}\n", version(), commit(), build_options());
}

/// `plan --help` and `plan --version` must work whatever a configuration file says.
Result<Outcome> answer(const Arguments& arguments) {
  if (arguments.has("version")) return Outcome{version_text()};
  const bool explains = arguments.has("help");
  const Setting asked_color{arguments.value("color").value_or("auto"), "--color"};
  if (explains) {
    const Result<TextStyle> style = style_of_terminal(asked_color.value, asked_color.where);
    if (!style) return style.error();
    return Outcome{arguments.verb_given ? verb_help(*arguments.verb, *style) : overview(*style)};
  }
  Result<Settings> settings = merged_settings(arguments);
  if (!settings) return settings.error();
  const Setting* color = settings->find("color");
  const Setting& when = color != nullptr ? *color : asked_color;
  const Result<TextStyle> style = style_of_terminal(when.value, when.where);
  if (!style) return style.error();
  Invocation call{arguments, *std::move(settings), *style, arguments.has("json"), false};
  if (const Setting* quiet = call.settings.find("quiet")) {
    const std::string& value = quiet->value;
    if (value != "true" && value != "1" && value != "false" && value != "0") {
      return input_error(quiet->where, "'" + value.substr(0, 40) + "'", "true or false");
    }
    call.quiet = value == "true" || value == "1";
  }
  if (!call.quiet) {
    for (const std::string& note : suspicious_variables()) complain("note: " + note);
  }
  return function_of(*arguments.verb)(call);
}

int report_error(const Error& error) {
  complain(error.message());
  return error.kind == Error::Kind::input ? kWrongInput : kEnvironment;
}

int guarded_run(int argc, const char* const* argv) {
  const Result<Arguments> arguments = parse_arguments(argc, argv);
  if (!arguments) return report_error(arguments.error());
  const Result<Outcome> outcome = answer(*arguments);
  if (!outcome) return report_error(outcome.error());
  if (const Status written = write_output(outcome->output); !written) {
    return report_error(written.error());
  }
  return outcome->exit_code;
}

}  // namespace

int run(int argc, const char* const* argv) {
  secure_standard_streams();
  try {
    return guarded_run(argc, argv);
  } catch (const std::bad_alloc&) {
    complain("not enough memory");
  } catch (const std::exception& error) {
    complain(std::string("unexpected: ") + error.what());
  }
  return kEnvironment;
}

}  // namespace echelon::cli

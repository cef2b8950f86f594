#include "cli/app.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>

#include "cli/commands/command.hpp"
#include "cli/commands/command_table.hpp"
#include "cli/commands/help.hpp"
#include "cli/commands/parse_arguments.hpp"
#include "cli/system/terminal.hpp"
#include "core/base/text.hpp"
#include "core/version.hpp"

namespace echelon::cli {

namespace {

std::string version_text() {
  return fmt::format("plan {} ({})\n{}\n", version(), commit(), build_options());
}

/// `plan --help` and `plan --version` must work with any configuration file.
Result<CommandResult> answer(const Arguments& arguments) {
  if (arguments.has("version")) return CommandResult{version_text()};
  const bool explains = arguments.has("help");
  const Setting asked_color{arguments.value("color").value_or("auto"), "--color"};
  if (explains) {
    const Result<TextStyle> style = style_of_terminal(asked_color.value, asked_color.where);
    if (!style) return style.error();
    return CommandResult{arguments.command_given ? command_help(*arguments.command, *style)
                                                 : overview(*style)};
  }
  Result<Settings> settings = merged_settings(arguments);
  if (!settings) return settings.error();
  const Setting* color = settings->find("color");
  const Setting& when = color != nullptr ? *color : asked_color;
  const Result<TextStyle> style = style_of_terminal(when.value, when.where);
  if (!style) return style.error();
  CommandContext context{arguments, *std::move(settings), *style, arguments.has("json"), false};
  if (const Setting* quiet = context.settings.find("quiet")) {
    const std::string& value = quiet->value;
    if (value != "true" && value != "1" && value != "false" && value != "0") {
      return input_error(quiet->where, in_quotes(value), "true or false");
    }
    context.quiet = value == "true" || value == "1";
  }
  if (!context.quiet) {
    for (const std::string& note : suspicious_variables()) complain("note: " + note);
  }
  if (const Status ok = check_outputs(context); !ok) return ok.error();
  return arguments.command->function(context);
}

int report_error(const Error& error) {
  complain(error.message());
  return error.kind == Error::Kind::input ? kWrongInput : kEnvironment;
}

int guarded_run(int argc, const char* const* argv) {
  const Result<Arguments> arguments = parse_arguments(argc, argv);
  if (!arguments) return report_error(arguments.error());
  const Result<CommandResult> result = answer(*arguments);
  if (!result) return report_error(result.error());
  if (const Status written = write_output(result->output); !written) {
    return report_error(written.error());
  }
  if (!result->not_written) return result->exit_code;
  const int not_written = report_error(*result->not_written);
  return result->exit_code > kNo ? result->exit_code : not_written;
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

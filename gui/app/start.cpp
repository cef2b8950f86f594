#include "gui/app/start.hpp"

#include <fmt/format.h>

#include <QApplication>
#include <QRawFont>
#include <QTimer>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/commands/command.hpp"
#include "cli/commands/command_table.hpp"
#include "cli/commands/help.hpp"
#include "cli/commands/parse_arguments.hpp"
#include "cli/system/terminal.hpp"
#include "core/version.hpp"
#include "gui/app/screenshots.hpp"
#include "gui/app/session_io.hpp"
#include "gui/app/window.hpp"
#include "gui/canvas/qt_text.hpp"

namespace echelon::gui {

namespace {

int report_error(const Error& error) {
  cli::complain(error.message());
  return error.kind == Error::Kind::input ? cli::kWrongInput : cli::kEnvironment;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

/// Drops Qt's warnings about the missing display.
void report_faults_only(QtMsgType type, const QMessageLogContext&, const QString& text) {
  if (type == QtCriticalMsg || type == QtFatalMsg) cli::complain(text.toStdString());
}

/// Parses the arguments as flags of `plan gui`.
Result<cli::Arguments> arguments_of(int argc, char** argv) {
  std::vector<const char*> words = {"plan", "gui"};
  words.insert(words.end(), argv + 1, argv + argc);
  return cli::parse_arguments(static_cast<int>(words.size()), words.data());
}

/// Errors of the initial settings; a missing model is none.
Status check_request(const cli::Settings& settings) {
  if (!settings.has("model")) return Done{};
  const Result<cli::ResolvedRequest> resolved = cli::resolve_search(settings);
  if (!resolved) return resolved.error();
  return Done{};
}

int print_help_or_version(const cli::Arguments& arguments) {
  const auto style = cli::style_of_terminal(arguments.value("color").value_or("auto"), "--color");
  if (!style) return report_error(style.error());
  const std::string text =
      arguments.has("version")
          ? fmt::format("plan-gui {} ({})\n{}\n", version(), commit(), build_options())
          : cli::command_help(*cli::find_command("gui"), *style);
  const Status written = cli::write_output(text);
  return written ? cli::kDone : report_error(written.error());
}

int show(int argc, char** argv, const cli::Arguments& arguments, const cli::Settings& settings) {
  const std::optional<std::string> screenshots = arguments.value("screenshot");
  if (screenshots) {
    qputenv("QT_QPA_PLATFORM", "offscreen");
    qInstallMessageHandler(report_faults_only);
  } else if (!is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") && !is_set("QT_QPA_PLATFORM")) {
    return report_error(
        environment_error("plan gui", "there is no display",
                          "start it with a display (ssh -X forwards one), or write "
                          "screenshots of a plan: plan gui --screenshot DIR plan.json"));
  }
  int count = argc;
  QApplication application(count, argv);
  QApplication::setApplicationName(QStringLiteral("plan-gui"));
  QApplication::setApplicationVersion(qt_text(version()));
  // Without fonts Qt draws boxes; the font it names then has no tables.
  if (QRawFont::fromFont(QApplication::font()).fontTable("head").isEmpty()) {
    return report_error(environment_error("plan gui", "there are no fonts",
                                          "install some: apt-get install fonts-dejavu-core"));
  }
  Window window;
  const bool from_file = !arguments.words.empty();
  if (from_file) {
    const Result<Session> session = session_of_file(arguments.words.front(), settings);
    if (!session) return report_error(session.error());
    window.session().reset(session->query);
    window.restore_pinned(session->pinned);
  } else {
    window.session().reset(query_of(settings));
  }
  if (screenshots) {
    const Status saved = save_screenshots(window, *screenshots);
    return saved ? cli::kDone : report_error(saved.error());
  }
  window.show_on_screen();
  return QApplication::exec();
}

}  // namespace

int run(int argc, char** argv) {
  cli::secure_standard_streams();
  const Result<cli::Arguments> arguments = arguments_of(argc, argv);
  if (!arguments) return report_error(arguments.error());
  if (arguments->has("help") || arguments->has("version")) return print_help_or_version(*arguments);
  if (arguments->has("json")) {
    return report_error(input_error("--json", "the window prints nothing", "the flags without it",
                                    "plan predict and plan search write JSON"));
  }
  // A file is complete; the environment and configuration files do not change it.
  const Result<cli::Settings> settings = arguments->words.empty()
                                             ? cli::merged_settings(*arguments)
                                             : Result(cli::settings_of_flags(*arguments));
  if (!settings) return report_error(settings.error());
  if (arguments->words.empty()) {
    if (const Status right = check_request(*settings); !right) return report_error(right.error());
  }
  return show(argc, argv, *arguments, *settings);
}

}  // namespace echelon::gui

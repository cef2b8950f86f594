#include "gui/start.hpp"

#include <fmt/format.h>

#include <QApplication>
#include <QRawFont>
#include <QTimer>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/arguments.hpp"
#include "cli/help.hpp"
#include "cli/terminal.hpp"
#include "cli/verbs.hpp"
#include "core/version.hpp"
#include "gui/qt_text.hpp"
#include "gui/screenshots.hpp"
#include "gui/session_io.hpp"
#include "gui/window.hpp"

namespace echelon::gui {

namespace {

int told(const Error& error) {
  cli::complain(error.message());
  return error.kind == Error::Kind::input ? cli::kWrongInput : cli::kEnvironment;
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

/// Without a display Qt warns of what only matters with one.
void only_faults(QtMsgType type, const QMessageLogContext&, const QString& text) {
  if (type == QtCriticalMsg || type == QtFatalMsg) cli::complain(text.toStdString());
}

/// The flags as `plan gui` takes them.
Result<cli::Arguments> arguments_of(int argc, char** argv) {
  std::vector<const char*> words = {"plan", "gui"};
  words.insert(words.end(), argv + 1, argv + argc);
  return cli::parse_arguments(static_cast<int>(words.size()), words.data());
}

/// What the window is to show first, as far as it is wrong; a question without a model is not.
Status check_question(const cli::Settings& settings) {
  if (!settings.has("model")) return Done{};
  const Result<cli::Asked> asked = cli::understand(settings);
  if (!asked) return asked.error();
  return Done{};
}

int tell_about_us(const cli::Arguments& arguments) {
  const auto style = cli::style_of_terminal(arguments.value("color").value_or("auto"), "--color");
  if (!style) return told(style.error());
  const std::string text =
      arguments.has("version")
          ? fmt::format("plan-gui {} ({})\n{}\n", version(), commit(), build_options())
          : cli::verb_help(*cli::find_verb("gui"), *style);
  const Status written = cli::write_output(text);
  return written ? cli::kDone : told(written.error());
}

int show(int argc, char** argv, const cli::Arguments& arguments, const cli::Settings& settings) {
  const std::optional<std::string> pictures = arguments.value("screenshot");
  if (pictures) {
    qputenv("QT_QPA_PLATFORM", "offscreen");
    qInstallMessageHandler(only_faults);
  } else if (!is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") && !is_set("QT_QPA_PLATFORM")) {
    return told(environment_error("plan gui", "there is no display",
                                  "start it where there is one (ssh -X passes one on), or draw "
                                  "pictures of a plan: plan gui --screenshot DIR plan.json"));
  }
  int count = argc;
  QApplication application(count, argv);
  QApplication::setApplicationName(QStringLiteral("plan-gui"));
  QApplication::setApplicationVersion(qt_text(version()));
  // Without fonts Qt draws boxes, of a font that has no tables; families it names all the same.
  if (QRawFont::fromFont(QApplication::font()).fontTable("head").isEmpty()) {
    return told(environment_error("plan gui", "there are no fonts",
                                  "install some: apt-get install fonts-dejavu-core"));
  }
  Window window;
  const bool from_file = !arguments.words.empty();
  if (from_file) {
    const Result<Sheet> sheet = sheet_of_file(arguments.words.front(), settings);
    if (!sheet) return told(sheet.error());
    window.desk().open(*sheet);
  } else {
    window.desk().open(sheet_of(settings));
  }
  if (pictures) {
    const Status taken = take_pictures(window, *pictures);
    return taken ? cli::kDone : told(taken.error());
  }
  window.show_on_screen();
  return QApplication::exec();
}

}  // namespace

int run(int argc, char** argv) {
  cli::secure_standard_streams();
  const Result<cli::Arguments> arguments = arguments_of(argc, argv);
  if (!arguments) return told(arguments.error());
  if (arguments->has("help") || arguments->has("version")) return tell_about_us(*arguments);
  if (arguments->has("json")) {
    return told(input_error("--json", "the window prints nothing", "the flags without it",
                            "plan predict and plan search write JSON"));
  }
  // A file is complete: environment and configuration files do not change it.
  const Result<cli::Settings> settings = arguments->words.empty()
                                             ? cli::merged_settings(*arguments)
                                             : Result(cli::settings_of_flags(*arguments));
  if (!settings) return told(settings.error());
  if (arguments->words.empty()) {
    if (const Status right = check_question(*settings); !right) return told(right.error());
  }
  return show(argc, argv, *arguments, *settings);
}

}  // namespace echelon::gui

#include "gui/canvas/image_export.hpp"

#include <QImage>
#include <filesystem>

#include "gui/views/step_view.hpp"
#include "tests/gui/plan_results.hpp"
#include "tests/support/catch.hpp"
#include "tests/support/temp_dir.hpp"

using namespace echelon;

namespace {

QString in_folder(const TempDir& folder, const char* name) {
  return QString::fromStdString((folder.path() / name).string());
}

}  // namespace

TEST_CASE("a view is saved as PNG at twice its size") {
  const TempDir folder;
  gui::StepView view;
  view.resize(400, 300);
  view.show_plan(small_plan());
  REQUIRE(gui::export_image(view, in_folder(folder, "step.png")).ok());
  const QImage image(in_folder(folder, "step.png"));
  CHECK(image.size() == QSize(800, 600));
}

TEST_CASE("a view is saved as SVG with its text as text") {
  const TempDir folder;
  gui::StepView view;
  view.resize(400, 300);
  view.show_plan(small_plan());
  REQUIRE(gui::export_image(view, in_folder(folder, "step.SVG")).ok());
  const std::string svg = slurp(folder.path() / "step.SVG");
  CHECK(svg.find("<svg") != std::string::npos);
  CHECK(svg.find("compute") != std::string::npos);
}

TEST_CASE("an image that cannot be saved reports the reason") {
  const TempDir folder;
  gui::StepView view;
  view.resize(40, 30);
  const Status wrong = gui::export_image(view, in_folder(folder, "step.bmp"));
  REQUIRE_FALSE(wrong.ok());
  CHECK(wrong.error().kind == Error::Kind::input);
  CHECK(wrong.error().message().find(".png or .svg") != std::string::npos);
  const Status none = gui::export_image(view, in_folder(folder, "step"));
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().found == "no suffix");
  const Status lost = gui::export_image(view, in_folder(folder, "no/such/folder.png"));
  REQUIRE_FALSE(lost.ok());
  CHECK(lost.error().kind == Error::Kind::environment);
  CHECK_FALSE(std::filesystem::exists(folder.path() / "step.bmp"));
}

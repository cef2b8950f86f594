#include "gui/canvas/image_export.hpp"

#include <QBuffer>
#include <QByteArray>
#include <QFileInfo>
#include <QImage>
#include <QPainter>
#include <QSvgGenerator>
#include <string_view>

#include "core/base/files.hpp"

namespace echelon::gui {
namespace {

constexpr double kPixelsPerPoint = 2;

QByteArray png_of(QWidget& view) {
  QImage image(view.size() * kPixelsPerPoint, QImage::Format_ARGB32_Premultiplied);
  image.setDevicePixelRatio(kPixelsPerPoint);
  image.fill(view.palette().color(QPalette::Window));
  view.render(&image);
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  image.save(&buffer, "PNG");
  return bytes;
}

QByteArray svg_of(QWidget& view) {
  QByteArray bytes;
  QBuffer buffer(&bytes);
  buffer.open(QIODevice::WriteOnly);
  QSvgGenerator generator;
  generator.setOutputDevice(&buffer);
  generator.setSize(view.size());
  generator.setViewBox(view.rect());
  generator.setTitle(view.accessibleName());
  QPainter painter(&generator);
  painter.fillRect(view.rect(), view.palette().color(QPalette::Window));
  view.render(&painter);
  painter.end();
  return bytes;
}

}  // namespace

Status export_image(QWidget& view, const QString& path) {
  const std::string name = path.toStdString();
  const QString suffix = QFileInfo(path).suffix().toLower();
  if (suffix != "png" && suffix != "svg") {
    return input_error(name, suffix.isEmpty() ? "no suffix" : "'." + suffix.toStdString() + "'",
                       "a file that ends in .png or .svg");
  }
  const QByteArray bytes = suffix == "png" ? png_of(view) : svg_of(view);
  return write_file(name,
                    std::string_view(bytes.constData(), static_cast<std::size_t>(bytes.size())));
}

}  // namespace echelon::gui

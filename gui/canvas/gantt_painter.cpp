#include "gui/canvas/gantt_painter.hpp"

#include <QPainter>
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gui/canvas/theme.hpp"

namespace echelon::gui {
namespace {

constexpr double kLeastLabelWidth = 22;
constexpr std::size_t kMostLabels = 1500;  ///< more would exceed the frame time
constexpr int kStripe = 7;                 ///< device pixels from stripe to stripe
constexpr float kIdle = 0.02F;             ///< a pixel covered less than this is idle

struct Tint {
  float red = 0, green = 0, blue = 0;
};
Tint tint_of(const QColor& colour) {
  return {static_cast<float>(colour.red()), static_cast<float>(colour.green()),
          static_cast<float>(colour.blue())};
}

/// One line of pixels, blended from bars, with the kinds that share a pixel.
class PixelLine {
 public:
  using Shares = std::array<float, kBarKinds>;

  explicit PixelLine(std::size_t width) : pixels_(width), shares_(width) {}

  void clear() { std::fill(pixels_.begin(), pixels_.end(), Pixel{}); }

  void lay(double from, double to, const Tint& tint, BarKind kind) {
    from = std::max(from, 0.0);
    to = std::min(to, static_cast<double>(pixels_.size()));
    if (to <= from) return;
    auto first = static_cast<std::size_t>(from);
    const auto last = static_cast<std::size_t>(to);
    const auto add_share = [&](std::size_t at, double share) {
      add(at, static_cast<float>(share), tint, kind);
    };
    if (first == last) return add_share(first, to - from);
    add_share(first, static_cast<double>(first + 1) - from);
    for (++first; first < last; ++first) pixels_[first] = {tint, 1, kWhole};
    if (last < pixels_.size()) add_share(last, to - static_cast<double>(last));
  }

  /// The share of each kind in a mixed pixel.
  [[nodiscard]] const Shares& shares(std::size_t at) const { return shares_[at]; }

  /// Blends with `base`; `idle` marks the uncovered pixels, `mixed` lists those of several kinds.
  void compose(const Tint& base, std::vector<QRgb>& out, std::vector<char>& idle,
               std::vector<std::size_t>& mixed) const {
    mixed.clear();
    for (std::size_t i = 0; i < pixels_.size(); ++i) {
      const Pixel& p = pixels_[i];
      const float left = std::max(0.0F, 1 - p.covered);
      const auto mix = [&](float laid, float below) {
        return std::min(255, static_cast<int>(laid + left * below + 0.5F));
      };
      out[i] = qRgb(mix(p.tint.red, base.red), mix(p.tint.green, base.green),
                    mix(p.tint.blue, base.blue));
      idle[i] = p.covered < kIdle ? 1 : 0;
      if ((p.kinds & kWhole) == 0 && std::popcount(p.kinds) > 1) mixed.push_back(i);
    }
  }

 private:
  static constexpr std::uint32_t kWhole = 1U << kBarKinds;  ///< one bar covers the pixel

  struct Pixel {
    Tint tint;
    float covered = 0;
    std::uint32_t kinds = 0;  ///< a bit for each; their shares are valid unless kWhole is set
  };
  void add(std::size_t at, float share, const Tint& tint, BarKind kind) {
    Pixel& p = pixels_[at];
    p.tint.red += share * tint.red;
    p.tint.green += share * tint.green;
    p.tint.blue += share * tint.blue;
    p.covered += share;
    if (p.kinds == 0) shares_[at] = {};
    p.kinds |= 1U << static_cast<unsigned>(kind);
    shares_[at][static_cast<std::size_t>(kind)] += share;
  }

  std::vector<Pixel> pixels_;
  std::vector<Shares> shares_;
};

/// The microbatch number on a wide bar.
struct BarLabel {
  QRectF box;
  std::int32_t microbatch = 0;
  BarKind kind{};
};

class GanttImage {
 public:
  GanttImage(const Gantt& gantt, const GanttWindow& window, const QPalette& palette, double ratio,
             QImage& image)
      : gantt_(gantt), window_(window), palette_(palette), ratio_(ratio), image_(image) {
    const QSize size(std::max(1, static_cast<int>(std::lround(window.size.width() * ratio))),
                     std::max(1, static_cast<int>(std::lround(window.size.height() * ratio))));
    if (image_.size() != size) image_ = QImage(size, QImage::Format_RGB32);
    const auto width = static_cast<std::size_t>(image_.width());
    line_ = PixelLine(width);
    colours_.resize(width);
    idle_.resize(width);
    for (int kind = 0; kind < kBarKinds; ++kind) {
      tints_[static_cast<std::size_t>(kind)] =
          tint_of(series_colour(series_of(static_cast<BarKind>(kind))));
    }
    const QColor base = palette.color(QPalette::Base);
    const QColor text = palette.color(QPalette::WindowText);
    base_ = tint_of(base);
    const auto between = [&](double share) {
      const auto mix = [&](int a, int b) { return static_cast<int>(a + share * (b - a)); };
      return qRgb(mix(base.red(), text.red()), mix(base.green(), text.green()),
                  mix(base.blue(), text.blue()));
    };
    stripe_ = between(0.22);
  }

  void draw() {
    image_.setDevicePixelRatio(1);
    for (const GanttRow& row : gantt_.rows) {
      const double top = window_.top(row);
      if (top + window_.height(row) >= 0 && top <= window_.size.height()) draw(row);
    }
    fill(image_.height());
    image_.setDevicePixelRatio(ratio_);
    draw_labels();
  }

 private:
  void draw(const GanttRow& row) {
    line_.clear();
    const double scale = image_.width() / (window_.to - window_.from);
    const bool labelled =
        window_.height(row) >= QFontMetricsF(QFont()).height() && row.queue == Queue::compute;
    for (std::size_t i = first_after(row, window_.from); i < row.bars.size(); ++i) {
      const Bar& bar = row.bars[i];
      if (bar.start >= window_.to) break;
      const double from = (bar.start - window_.from) * scale;
      double to = (bar.end - window_.from) * scale;
      if (to - from > 4) to -= 1;  // separates neighbours
      lay(bar, from, to);
      if (labelled && to - from >= kLeastLabelWidth * ratio_ && labels_.size() <= kMostLabels) {
        note_label(row, bar, from, to);
      }
    }
    line_.compose(base_, colours_, idle_, mixed_);
    copy_to_image(row);
  }

  void lay(const Bar& bar, double from, double to) {
    const auto tint = [this](BarKind kind) { return tints_[static_cast<std::size_t>(kind)]; };
    const double recomputed = from + bar.recomputed * (to - from);
    if (bar.recomputed > 0) {
      line_.lay(from, recomputed, tint(BarKind::recompute), BarKind::recompute);
    }
    line_.lay(recomputed, to, tint(bar.kind), bar.kind);
  }

  /// The colour of a pixel that several kinds share, at `height` from 0 (below) to 1: their shares
  /// are stacked, because a blend of their colours would be none of the legend's.
  [[nodiscard]] QRgb stacked(std::size_t x, float height) const {
    const PixelLine::Shares& shares = line_.shares(x);
    for (std::size_t kind = 0; kind < shares.size(); ++kind) {
      height -= shares[kind];
      if (height >= 0) continue;
      const Tint& tint = tints_[kind];
      return qRgb(static_cast<int>(tint.red), static_cast<int>(tint.green),
                  static_cast<int>(tint.blue));
    }
    return palette_.color(QPalette::Base).rgb();
  }

  void note_label(const GanttRow& row, const Bar& bar, double from, double to) {
    const Instruction& i = gantt_.step.schedule.programs[static_cast<std::size_t>(row.rank)]
                               .instructions[bar.instruction];
    if (!i.microbatch) return;
    const double left = std::max(0.0, from / ratio_);
    const double right = std::min(window_.size.width(), to / ratio_);
    if (right - left < kLeastLabelWidth) return;
    labels_.push_back({QRectF(left, window_.top(row), right - left, window_.height(row)),
                       *i.microbatch, bar.kind});
  }

  void copy_to_image(const GanttRow& row) {
    const double gap = window_.height(row) > 4 ? 1 : 0;  // between rows
    const int top = std::max(0, static_cast<int>(std::lround(window_.top(row) * ratio_)));
    fill(top);
    drawn_ = std::max(drawn_, top);
    const int bottom = std::min(
        image_.height(),
        static_cast<int>(std::lround((window_.top(row) + window_.height(row) - gap) * ratio_)));
    // An idle compute queue is a bubble only within the step.
    const double scale = image_.width() / (window_.to - window_.from);
    const int first = std::clamp(static_cast<int>(-window_.from * scale), 0, image_.width());
    const int last =
        std::clamp(static_cast<int>((gantt_.makespan - window_.from) * scale), 0, image_.width());
    for (int y = drawn_; y < bottom; ++y) {
      auto* pixels = reinterpret_cast<QRgb*>(image_.scanLine(y));
      std::memcpy(pixels, colours_.data(), colours_.size() * sizeof(QRgb));
      const float height =
          (static_cast<float>(bottom - y) - 0.5F) / static_cast<float>(bottom - top);
      for (const std::size_t x : mixed_) pixels[x] = stacked(x, height);
      if (row.queue != Queue::compute) continue;
      for (int x = first + (kStripe - (first + y) % kStripe) % kStripe; x < last; x += kStripe) {
        if (idle_[static_cast<std::size_t>(x)] != 0) pixels[x] = stripe_;
      }
    }
    drawn_ = std::max(drawn_, bottom);
  }

  /// Fills the lines above `end` that no row has drawn.
  void fill(int end) {
    const QRgb base = palette_.color(QPalette::Base).rgb();
    for (; drawn_ < end; ++drawn_) {
      auto* pixels = reinterpret_cast<QRgb*>(image_.scanLine(drawn_));
      std::fill(pixels, pixels + image_.width(), base);
    }
  }

  /// Labels all bars or none: labels on some of them would look like an error.
  void draw_labels() {
    if (labels_.size() > kMostLabels) return;
    QPainter painter(&image_);
    for (const BarLabel& label : labels_) {
      painter.setPen(text_on(series_colour(series_of(label.kind))));
      painter.drawText(label.box, Qt::AlignCenter | Qt::TextSingleLine,
                       QString::number(label.microbatch));
    }
  }

  const Gantt& gantt_;
  const GanttWindow& window_;
  const QPalette& palette_;
  double ratio_;
  QImage& image_;
  int drawn_ = 0;  ///< lines of the image drawn so far
  PixelLine line_{0};
  std::vector<QRgb> colours_;
  std::vector<char> idle_;
  std::vector<std::size_t> mixed_;
  std::array<Tint, kBarKinds> tints_;
  Tint base_;
  QRgb stripe_ = 0;
  std::vector<BarLabel> labels_;
};

}  // namespace

void paint(const Gantt& gantt, const GanttWindow& window, const QPalette& palette,
           double device_pixel_ratio, QImage& image) {
  GanttImage(gantt, window, palette, device_pixel_ratio, image).draw();
}

}  // namespace echelon::gui

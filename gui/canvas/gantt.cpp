#include "gui/canvas/gantt.hpp"

#include <QStringList>
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "gui/canvas/painting.hpp"
#include "gui/canvas/qt_text.hpp"
#include "report/format.hpp"

namespace echelon::gui {
namespace {

constexpr double kComputeHeight = 4;
constexpr double kBetweenRanks = 0.5;

BarKind kind_of(Op op) {
  switch (op) {
    case Op::forward: return BarKind::forward;
    case Op::backward:
    case Op::backward_input: return BarKind::backward;
    case Op::backward_weight: return BarKind::weight_gradient;
    case Op::send_activation:
    case Op::recv_activation:
    case Op::send_gradient:
    case Op::recv_gradient: return BarKind::message;
    case Op::gather_parameters:
    case Op::release_parameters:
    case Op::gather_updated: return BarKind::gather;
    case Op::reduce_gradients:
    case Op::reduce_tied_embedding:
    case Op::norm_reduce: return BarKind::reduce;
    case Op::clip:
    case Op::optimizer_step:
    case Op::zero_gradients: return BarKind::optimizer;
    case Op::load_batch: return BarKind::load;
  }
  return BarKind::forward;
}

float recomputed_share(const SimulatedStep& step, int rank, const Instruction& i) {
  if (i.op != Op::backward && i.op != Op::backward_input) return 0;
  const ChunkTimes& times =
      step.costs.stages[static_cast<std::size_t>(step.schedule.stage(rank, *i.chunk))];
  const Seconds whole =
      i.op == Op::backward ? times.backward() : times.recompute + times.backward_input;
  return whole > Seconds{} ? static_cast<float>(times.recompute / whole) : 0.0F;
}

QString milliseconds_of(double seconds) { return qt_text(duration(Seconds{seconds})); }

QString op_words(Op op) {
  switch (op) {
    case Op::forward: return QStringLiteral("forward");
    case Op::backward: return QStringLiteral("backward");
    case Op::backward_input: return QStringLiteral("input gradient");
    case Op::backward_weight: return QStringLiteral("weight gradient");
    case Op::send_activation: return QStringLiteral("send activations");
    case Op::recv_activation: return QStringLiteral("receive activations");
    case Op::send_gradient: return QStringLiteral("send gradients");
    case Op::recv_gradient: return QStringLiteral("receive gradients");
    case Op::gather_parameters: return QStringLiteral("gather parameters");
    case Op::reduce_gradients: return QStringLiteral("reduce gradients");
    case Op::reduce_tied_embedding: return QStringLiteral("reduce tied embedding");
    case Op::norm_reduce: return QStringLiteral("all-reduce of the gradient norm");
    case Op::optimizer_step: return QStringLiteral("optimizer");
    case Op::gather_updated: return QStringLiteral("gather updated parameters");
    default: return qt_text(name_of(op));
  }
}

}  // namespace

QString name_of(BarKind kind) {
  static const std::array<const char*, kBarKinds> kNames = {
      "forward",    "backward", "recompute", "weight gradient", "send/recv",
      "all-gather", "reduce",   "optimizer", "load batch"};
  return QString::fromLatin1(kNames[static_cast<std::size_t>(kind)]);
}

int series_of(BarKind kind) {
  static constexpr std::array<int, kBarKinds> kSeries = {0, 2, 1, 4, 3, 6, 5, 7, 8};
  return kSeries[static_cast<std::size_t>(kind)];
}

GanttPtr gantt_of(SimulatedStep step) {
  auto out = std::make_shared<Gantt>();
  const int ranks = step.schedule.ranks;
  out->idle = idle_share(step.timeline, ranks);
  out->makespan = step.timeline.makespan.in(kSecond);
  std::vector<GanttRow> all(static_cast<std::size_t>(ranks) * kQueues);
  std::array<bool, kBarKinds> occurs{};
  const auto note = [&](BarKind kind) { occurs[static_cast<std::size_t>(kind)] = true; };
  for (const Span& span : step.timeline.spans) {
    if (span.end <= span.start) continue;
    const Instruction& i =
        step.schedule.programs[static_cast<std::size_t>(span.rank)].instructions[span.id];
    const float recomputed = recomputed_share(step, span.rank, i);
    all[static_cast<std::size_t>(span.rank) * kQueues + static_cast<std::size_t>(span.queue)]
        .bars.push_back(
            {span.start.in(kSecond), span.end.in(kSecond), span.id, kind_of(i.op), recomputed});
    note(kind_of(i.op));
    if (recomputed > 0) note(BarKind::recompute);
  }
  double top = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    for (int queue = 0; queue < kQueues; ++queue) {
      GanttRow& row = all[static_cast<std::size_t>(rank * kQueues + queue)];
      row.rank = rank;
      row.queue = static_cast<Queue>(queue);
      if (row.bars.empty() && row.queue != Queue::compute) continue;
      row.top = top;
      row.height = row.queue == Queue::compute ? kComputeHeight : 1;
      top += row.height;
      // Queues run in order, so the bars are sorted already unless the simulator changes.
      std::ranges::stable_sort(row.bars, {}, &Bar::start);
      out->rows.push_back(std::move(row));
    }
    top += kBetweenRanks;
  }
  out->height = top;
  for (int kind = 0; kind < kBarKinds; ++kind) {
    if (occurs[static_cast<std::size_t>(kind)]) out->kinds.push_back(static_cast<BarKind>(kind));
  }
  out->step = std::move(step);
  return out;
}

std::size_t first_after(const GanttRow& row, double time) {
  return static_cast<std::size_t>(std::ranges::upper_bound(row.bars, time, {}, &Bar::end) -
                                  row.bars.begin());
}

const Bar* bar_near(const GanttRow& row, double time, double slack) {
  const std::size_t at = first_after(row, time);
  const Bar* next = at < row.bars.size() ? &row.bars[at] : nullptr;
  const Bar* before = at > 0 ? &row.bars[at - 1] : nullptr;
  const double to_next = next != nullptr ? next->start - time : slack + 1;
  const double since = before != nullptr ? time - before->end : slack + 1;
  if (to_next <= 0 || (to_next <= slack && to_next <= since)) return next;
  return since <= slack ? before : nullptr;
}

QStringList bar_details(const Gantt& gantt, const GanttRow& row, const Bar& bar) {
  const auto& program =
      gantt.step.schedule.programs[static_cast<std::size_t>(row.rank)].instructions;
  const Instruction& i = program[bar.instruction];
  QString what = op_words(i.op);
  if (i.chunk && gantt.step.schedule.chunks > 1) what += QStringLiteral(", chunk %1").arg(*i.chunk);
  if (i.microbatch) what += QStringLiteral(", microbatch %1").arg(*i.microbatch);
  if (i.unit) what += QStringLiteral(", unit %1").arg(*i.unit);
  if (i.peer) what += QStringLiteral(", with rank %1").arg(*i.peer);
  QStringList lines;
  lines << QStringLiteral("pipeline rank %1 · %2")
               .arg(row.rank)
               .arg(qt_text(name_of(row.queue)).replace('_', ' '))
        << what
        << QStringLiteral("%1 – %2, %3")
               .arg(milliseconds_of(bar.start), milliseconds_of(bar.end),
                    milliseconds_of(bar.end - bar.start));
  if (bar.recomputed > 0) {
    lines << QStringLiteral("%1 recomputation").arg(qt_text(percent(bar.recomputed)));
  }
  if (i.bytes > 0) lines << QStringLiteral("%1 bytes").arg(qt_text(grouped(i.bytes)));
  QStringList waits;
  for (const std::uint32_t id : i.after) waits << qt_text(describe(row.rank, program[id]));
  if (is_communication(i.op)) waits << QStringLiteral("the other ranks of its group");
  if (!waits.isEmpty()) lines << QStringLiteral("waits for ") + waits.join(QStringLiteral(", "));
  return lines;
}

}  // namespace echelon::gui

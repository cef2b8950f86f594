// Where a resumed run goes on: step, sample and learning rate.
#include "runtime/training/start_point.hpp"

#include "tests/support/catch.hpp"
#include "tests/support/text.hpp"

namespace echelon {
namespace {

using echelon::test::lacks;

RunSettings settings_of(std::int64_t steps) {
  RunSettings s;
  s.steps = steps;
  s.learning_rate = 1e-2;
  s.min_lr = 1e-3;
  return s;
}

/// Progress of a run after `steps` steps, as its checkpoint has it.
Progress progress_of(const StartPoint& start, std::int64_t steps, std::int64_t batch) {
  Progress progress;
  progress.step = steps;
  progress.samples = start.samples(steps, batch);
  progress.global_batch = batch;
  progress.rate = start.schedule;
  return progress;
}

double rate_after(const StartPoint& start, std::int64_t samples, std::int64_t batch) {
  return start.rate.at(static_cast<double>(samples) / static_cast<double>(batch));
}

std::string all_of(const std::vector<std::string>& notes) {
  std::string all;
  for (const std::string& note : notes) all += note + "\n";
  return all;
}

TEST_CASE("a run from the start decays to its last step") {
  const StartPoint start = start_point(settings_of(10), 16, nullptr);
  CHECK(start.step == 0);
  CHECK(start.end == 10);
  CHECK(start.rate.total == 10);
  CHECK(start.schedule.decay_samples == 160);
  CHECK(start.notes.empty());
}

TEST_CASE("a resumed run keeps the rate's horizon, and says where the rate stays at its minimum") {
  RunSettings settings = settings_of(10);
  const StartPoint first = start_point(settings, 16, nullptr);
  const Progress stopped = progress_of(first, 4, 16);
  settings.resume = Resume::yes;
  settings.steps = 6;
  const StartPoint rest = start_point(settings, 16, &stopped);
  CHECK(rest.step == 4);
  CHECK(rest.end == 10);
  CHECK(rest.sample == 64);
  for (std::int64_t step = 4; step < 10; ++step)
    CHECK(rate_after(rest, 16 * step, 16) == rate_after(first, 16 * step, 16));
  CHECK(rest.notes.empty());
  // Today's command line, once more after its end: the rate does not jump back up.
  const Progress ended = progress_of(first, 10, 16);
  settings.steps = 10;
  const StartPoint more = start_point(settings, 16, &ended);
  CHECK(rate_after(more, 160, 16) == 1e-3);
  CHECK(rate_after(more, 300, 16) == 1e-3);
  CHECK(lacks(all_of(more.notes), "the learning rate stays at 0.001 from sample 160 on") == "");
  settings.lr_decay_steps = 20;
  const StartPoint longer = start_point(settings, 16, &ended);
  CHECK(longer.rate.total == 20);
  CHECK(longer.notes.empty());
}

TEST_CASE("another global batch goes on at the same sample and the same rate") {
  RunSettings settings = settings_of(10);
  settings.warmup_steps = 4;
  const StartPoint first = start_point(settings, 16, nullptr);
  settings.resume = Resume::automatic;
  settings.steps = 100;
  for (const std::int64_t batch : {4, 8, 24, 32}) {
    CAPTURE(batch);
    const Progress stopped = progress_of(first, 3, 16);
    const StartPoint rest = start_point(settings, batch, &stopped);
    CHECK(rest.sample == 48);
    CHECK(rest.samples(5, batch) == 48 + 2 * batch);
    CHECK(rest.schedule.warmup_samples == 64);
    CHECK(rest.schedule.decay_samples == 160);
    for (const std::int64_t samples : {64, 96, 120, 160, 200})
      CHECK(rate_after(rest, samples, batch) == Approx(rate_after(first, samples, 16)));
    CHECK(lacks(all_of(rest.notes), "written with a global batch of 16, now " +
                                        std::to_string(batch) +
                                        ": data and learning rate go on after 48 samples") == "");
    // And back again.
    const Progress later = progress_of(rest, 9, batch);
    const StartPoint back = start_point(settings, 16, &later);
    CHECK(back.sample == 48 + 6 * batch);
    CHECK(back.schedule.decay_samples == 160);
    CHECK(rate_after(back, 120, 16) == Approx(rate_after(first, 120, 16)));
  }
}

TEST_CASE("with --resume auto the steps are those of the whole training") {
  RunSettings settings = settings_of(10);
  settings.resume = Resume::automatic;
  const StartPoint first = start_point(settings, 16, nullptr);
  CHECK(first.end == 10);
  const Progress stopped = progress_of(first, 7, 16);
  const StartPoint rest = start_point(settings, 16, &stopped);
  CHECK(rest.step == 7);
  CHECK(rest.end == 10);
  const Progress ended = progress_of(first, 10, 16);
  CHECK(start_point(settings, 16, &ended).end == 10);
  settings.steps = 5;
  CHECK(start_point(settings, 16, &ended).end == 10);
}

TEST_CASE("changed flags of the learning rate count, and are reported") {
  RunSettings settings = settings_of(10);
  const StartPoint first = start_point(settings, 16, nullptr);
  const Progress stopped = progress_of(first, 4, 16);
  settings.resume = Resume::automatic;
  settings.learning_rate = 2e-2;
  settings.lr_decay_steps = 8;
  const StartPoint rest = start_point(settings, 16, &stopped);
  CHECK(rest.rate.peak == 2e-2);
  CHECK(rest.rate.total == 8);
  CHECK(lacks(all_of(rest.notes), "--learning-rate: 0.02; the run that is resumed had 0.01") == "");
}

TEST_CASE("a checkpoint of a version without a schedule resumes by its samples") {
  Progress old;
  old.step = 3;
  old.samples = 48;
  RunSettings settings = settings_of(7);
  settings.resume = Resume::yes;
  const StartPoint rest = start_point(settings, 8, &old);
  CHECK(rest.sample == 48);
  CHECK(rest.end == 10);
  CHECK(rest.schedule.decay_samples == 48 + 7 * 8);
  CHECK(lacks(all_of(rest.notes), "its version holds no learning-rate schedule") == "");
}

}  // namespace
}  // namespace echelon

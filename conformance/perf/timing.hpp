// Timed launches of one call.
//
// Launches are timed on the host, from the submission of the first to the return of synchronize():
// in groups of as many as take 2 ms, so that what a wait costs, which the scheduler of the machine
// decides, is none of theirs. Sets take turns, so that together they exceed the last-level cache
// twice, and before each round one element of an input of each set is changed: no launch sees what
// an earlier one saw.
//
// Yardsticks are measured between groups. A group counts if they say that the machine was quiet
// before it and after it: that they took at most 15 % more than in their best fifth; and if the
// process kept its processors. Where too few groups were quiet before patience ends, all count, and
// the call gets no grade.
//
// Whether results are cached is asked of one set alone, where caches of the hardware help every
// launch alike: before each launch either one element of an input is changed, or the same bytes are
// written once more, as a draw decides. Whatever else disturbs the machine meets both alike. If the
// latter are more than 10 % faster at the median, and their ranks are lower beyond four sigmas,
// twice in a row, the difference can only be that results were kept.
#pragma once

#include <optional>

#include "conformance/perf/call_sets.hpp"
#include "conformance/perf/estimate.hpp"
#include "conformance/runner/perf_options.hpp"

namespace bp::conformance {

// Launches one kernel of the backend directly, on workspace of its own.
class Launcher {
 public:
  // `kernel` takes calls like that of `frame`.
  Launcher(Context& t, const bp_kernel& kernel, const Frame& frame, bp_stream* stream);

  // Submits the call; ends the case if the kernel refuses.
  void launch(const Frame& frame) { launch(words_of(frame)); }
  // Waits for all that was submitted; ends the case if it failed.
  void wait();
  // Seconds from the submission of the call until its end.
  double timed(const Frame& frame);
  // Seconds of each of `count` launches that are submitted together.
  double timed_batch(const Frame& frame, int count);
  // The same of the calls of sets `first` to `first` + `count` - 1.
  double timed_sets(const CallSets& sets, size_t first, size_t count);

 private:
  std::vector<uint64_t> words_of(const Frame& frame) const {
    return frame.fitted(kernel_.args_size_bytes);
  }
  void launch(const std::vector<uint64_t>& words);

  Context& t_;
  const bp_kernel& kernel_;
  bp_stream* stream_;
  OwnedBuffer workspace_;
  bp_launch launch_{};
};

// The kernel of the backend for the call of `frame`. Ends the case as NotSupported, with the
// reasons of the kernels, where there is none.
const bp_kernel& native_kernel(Context& t, uint32_t op, const Frame& frame);

class Yardstick;

// Rounds over all sets. The last one, on restored data over poisoned outputs, is for the caller to
// verify.
GroupTimes time_rotating(CallSets& sets, Launcher& launcher,
                         const std::vector<Yardstick*>& yardsticks, const PerfOptions& options);

struct RepeatTimes {
  std::vector<double> changed;   // After one element of an input has changed.
  std::vector<double> repeated;  // After the same bytes were written again.

  bool is_cached() const;
};

// Empty if the call has no inputs. `seed` is that of the draws.
std::optional<RepeatTimes> time_repeated(CallSets& sets, Launcher& launcher, uint64_t seed);

}  // namespace bp::conformance

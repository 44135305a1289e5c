// Times launches of one call.
#pragma once

#include <optional>

#include "conformance/perf/call_sets.hpp"
#include "conformance/perf/estimate.hpp"
#include "conformance/runner/perf_options.hpp"

namespace bp::conformance {

// Launches one kernel of the backend directly, on a workspace of its own.
class Launcher {
 public:
  // `kernel` takes calls that are like the call of `frame`.
  Launcher(Context& t, const bp_kernel& kernel, const Frame& frame, bp_stream* stream);

  // Submits the call, and ends the case if the kernel refuses it.
  void launch(const Frame& frame) { launch(words_of(frame)); }
  // Waits for all submitted work, and ends the case if it failed.
  void wait();
  // Returns the seconds from the submission of the call until its end.
  double timed(const Frame& frame);
  // Returns the seconds of each of `count` launches that are submitted together.
  double timed_batch(const Frame& frame, int count);
  // Returns the seconds of each launch, for the calls of the sets `first` to `first` + `count` - 1,
  // which are submitted together.
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

// Returns the kernel of the backend for the call of `frame`. If there is none, it ends the case as
// NotSupported, with the reasons of the kernels.
const bp_kernel& native_kernel(Context& t, uint32_t op, const Frame& frame);

class Yardstick;

// Times rounds over all sets. The last round runs on restored data with poisoned outputs, so that
// the caller can verify it.
GroupTimes time_rotating(CallSets& sets, Launcher& launcher,
                         const std::vector<Yardstick*>& yardsticks, const PerfOptions& options);

struct RepeatTimes {
  std::vector<double> changed;   // The seconds after one element of an input has changed.
  std::vector<double> repeated;  // The seconds after the same bytes were written again.

  bool is_cached() const;
};

// Returns nothing if the call has no inputs. `seed` is the seed of the random choices.
std::optional<RepeatTimes> time_repeated(CallSets& sets, Launcher& launcher, uint64_t seed);

}  // namespace bp::conformance

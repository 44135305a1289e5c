// A piece of work that is always the same, and says how fast the machine is at the moment.
//
// Yardsticks are measured beside the ceilings, and again between the timed launches of each call:
// by how much longer they take there, the machine was slower while the call was measured, and its
// roof lies as much lower. They are
//
//   copies      op copy (the allocator's, where it has no kernel) of pieces of a buffer beyond the
//               cache, which take turns
//   products    op matmul of 512^3
#pragma once

#include <memory>
#include <vector>

#include "conformance/perf/dense.hpp"
#include "conformance/perf/timing.hpp"
#include "conformance/runner/perf_options.hpp"

namespace bp::conformance {

// The metrics that hold the seconds of one piece.
constexpr const char* kCopyYardstick = "copy_yardstick_s";
constexpr const char* kProductYardstick = "product_yardstick_s";
// That of an eighth of a copied piece.
constexpr const char* kPartYardstick = "part_yardstick_s";

class Yardstick {
 public:
  virtual ~Yardstick() = default;

  // Seconds of one piece now: of as many as take long enough to be timed.
  double seconds();

 protected:
  Yardstick(Context& t, bp_stream* stream) : t_(t), stream_(stream) {}

  Context& t_;
  bp_stream* stream_;

 private:
  virtual void submit() = 0;

  int count_ = 0;  // Of pieces that are timed together; 0 until it is known.
};

std::unique_ptr<Yardstick> copy_yardstick(Context& t, const PerfOptions& options,
                                          bp_stream* stream);
// The median seconds of an eighth of its piece. Where it takes as long as all of it, and longer
// than launches do, time does not go to the work: threads wait for their turn, as those do that
// share a processor under a real-time policy, without being preempted.
double part_seconds(Context& t, const PerfOptions& options, bp_stream* stream);
// NULL where the backend has no matmul of the dtype.
std::unique_ptr<Yardstick> product_yardstick(Context& t, bp_dtype dtype, bp_stream* stream);

}  // namespace bp::conformance

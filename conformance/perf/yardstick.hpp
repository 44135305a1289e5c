// A yardstick is a piece of work that is always the same; its time shows how fast the machine is at
// the moment.
//
// Yardsticks are measured beside the ceilings, and again between the timed launches of each call:
// if they take longer there, the machine was slower while the call was measured, and the roof of
// the call is lower by the same factor. There are two:
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
// The name of the metric with the seconds of an eighth of a copied piece.
constexpr const char* kPartYardstick = "part_yardstick_s";

class Yardstick {
 public:
  virtual ~Yardstick() = default;

  // Returns the seconds of one piece now. It runs enough pieces together to time them.
  double seconds();

 protected:
  Yardstick(Context& t, bp_stream* stream) : t_(t), stream_(stream) {}

  Context& t_;
  bp_stream* stream_;

 private:
  virtual void submit() = 0;

  int count_ = 0;  // The number of pieces that are timed together; 0 until it is known.
};

std::unique_ptr<Yardstick> copy_yardstick(Context& t, const PerfOptions& options,
                                          bp_stream* stream);
// Returns the median seconds of an eighth of a copied piece. The time does not go to the work if
// this eighth takes as long as the whole piece, and longer than launches do: then threads wait for
// their turn, as threads do that share a processor under a real-time policy without being
// preempted.
double part_seconds(Context& t, const PerfOptions& options, bp_stream* stream);
// Returns NULL if the backend has no matmul of the dtype.
std::unique_ptr<Yardstick> product_yardstick(Context& t, bp_dtype dtype, bp_stream* stream);

}  // namespace bp::conformance

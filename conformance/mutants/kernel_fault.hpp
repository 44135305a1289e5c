// A launch of a good kernel with a fault: the parts that the faults of kernels share.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "conformance/faults/ops.hpp"
#include "conformance/mutants/values.hpp"

namespace bp::faults {

// The state of one wrapped kernel.
struct KernelState {
  Fault fault;
  const Op* op = nullptr;
  std::mutex mutex;  // Guards all members below.
  uint64_t launches = 0;
  std::thread::id first_thread;
  std::vector<double> last;          // What the launch before has written, for stale values.
  std::deque<std::jthread> openers;  // Threads that let late work begin.
};

// One launch of a kernel that has a fault.
struct FaultyLaunch {
  const mutants::Call& call;
  KernelState& state;
  const void* args;
  std::vector<Argument> tensors;

  const Fault& fault() const { return state.fault; }
  // Notes that the fault has changed something.
  void note_change() const;
};

// Counts the launch, and returns whether it fits the fault's dtype and condition.
bool fits(const FaultyLaunch& launch);

// Returns whether element `i` of `tensor` belongs to the place. `count` is the number of elements.
bool is_at_place(std::string_view place, uint64_t number, const bp_tensor& tensor, size_t i,
                 size_t count);

// Returns the outputs whose elements a fault can read and write.
std::vector<const bp_tensor*> plain_outputs(const FaultyLaunch& launch);

// Returns BP_BOOL to BP_F64 for the names in fault texts, and 0 for others.
bp_dtype dtype_of(std::string_view name);

// Returns whether `wrong` is certainly beyond what the class of the op allows around `right`.
// `scale` is the largest number among the results.
bool is_beyond(const FaultyLaunch& launch, bp_dtype dtype, double right, double wrong,
               double scale);

// Returns a value that is little more than just beyond.
double just_beyond(const FaultyLaunch& launch, bp_dtype dtype, double right, double scale);

double largest_of(const mutants::Values& values);

// Launches, with wrong elements in the outputs; with a changed frame; with another effect.
bp_status launch_with_wrong_values(const FaultyLaunch& launch);
bp_status launch_with_wrong_frame(const FaultyLaunch& launch);
bp_status launch_with_wrong_effect(const FaultyLaunch& launch);

}  // namespace bp::faults

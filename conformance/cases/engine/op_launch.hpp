// One call of an op on guarded memory: the arguments that a backend gets, and its results.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_case.hpp"
#include "conformance/memory/guarded_tensor.hpp"

namespace bp::conformance {

// The layout of the tensors of a case. The diagnosis of a failure removes one property after the
// other.
struct Variant {
  bool has_offsets = true;        // If false, each tensor begins at byte 0 of its buffer.
  bool has_broadcasts = true;     // If false, axes of stride 0 are stored in full.
  bool has_layouts = true;        // If false, every tensor is dense.
  bool has_equal_rows = false;    // All rows of all tensors have the same distance.
  bool has_empty_buffers = true;  // If false, a tensor without elements has no buffer.
  bool has_acc_operands =
      false;  // Inline operands are tensors, in acc(x) if the kernel takes that.
  bool has_ignorable_links = false;  // Each tensor has a chain of links that nobody knows.
  bool has_threads = true;           // If false, both launches come from one thread.
  Edge edge = Edge::kNone;  // The side where tensors and workspace meet pages without access.
};

// One output after the launches of one variant.
struct OutputView {
  std::string_view name;
  bp_dtype dtype;
  Shape shape;
  std::vector<DoubleDouble> value;  // The values after the last launch.
  std::vector<uint64_t> bits;
  bool is_poisoned = true;         // If false, the tensor was an input too and held its data.
  std::vector<bool> is_unwritten;  // Elements that did not change in either launch.
  bool is_repeatable = true;       // Both launches gave the same bits.
  std::vector<DoubleDouble> first_value = {};  // The values after the first launch; empty if both
                                               // gave the same bits.
};

struct Observation {
  bp_status launch_status = BP_OK;
  bp_status stream_status = BP_OK;
  std::string status_text;
  bp_kernel_sources source = 0;
  const bp_kernel* kernel = nullptr;
  std::optional<bp_numerics> of_parts;  // What the kernels may do that a decomposition calls.
  std::vector<OutputView> outputs;
  std::string damage;          // A sentence about the first damaged canary; "" if all are whole.
  std::string modified_input;  // A sentence about the first modified input; "" if none was.

  // Returns how exact the result has to be.
  const bp_numerics* numerics() const { return of_parts ? &*of_parts : kernel->numerics; }
};

// Thrown if no kernel takes the call; `what` is the host's explanation.
struct NoKernel {
  std::string what;
};

// Launches the call of `op_case` on `data` twice, over two kinds of poison.
Observation observe(Context& t, const OpCase& op_case, const CallData& data,
                    const Variant& variant);

// The results of a kernel that claims the call by its data, but whose supports() refuses it.
struct Refused {
  std::string kernel;
  std::string reason;
  Observation seen;
};

// Launches a kernel that claims the call by its data but whose supports() refuses it, to see
// whether the call works. Returns nothing if there is no such kernel.
std::optional<Refused> observe_refused(Context& t, const OpCase& op_case, const CallData& data);

// Returns whether a kernel of the backend, or of `sources`, takes the call. The tensors have no
// memory.
bool is_served(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant,
               bp_kernel_sources sources);

// How a kernel of the backend answers to launch flags, and to tensors without memory.
struct Probe {
  bool has_kernel = false;
  bp_status status = BP_OK;  // The status of a launch with the flags.
  std::string text;
  bool is_untouched = true;          // The outputs did not change.
  bp_reason with_buffers = nullptr;  // The answer of supports() with buffers; NULL also if there is
                                     // no supports().
  bp_reason without_buffers = nullptr;
};
Probe probe_kernel(Context& t, const OpCase& op_case, const CallData& data, bp_launch_flags flags);

// The results of a call that a kernel had planned before.
struct Planned {
  std::string kernel;      // "" if the backend has none for the call.
  bool has_plans = false;  // The kernel makes plans for some calls.
  std::string refusal;     // The reason why the kernel made no plan for this call; "" if it made
                           // one.
  Observation seen;        // The results of two launches with one plan.
};

// Launches with a plan. `constants` are the numbers of the tensors that are declared constant.
Planned observe_planned(Context& t, const OpCase& op_case, const CallData& data,
                        const std::vector<uint32_t>& constants);

}  // namespace bp::conformance

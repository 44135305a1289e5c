// One call of an op on guarded memory: what a backend is given, and what came back.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_case.hpp"
#include "conformance/memory/guarded_tensor.hpp"

namespace bp::conformance {

// How the tensors of a case are laid out. The diagnosis of a failure takes one property away after
// the other.
struct Variant {
  bool has_offsets = true;        // Else each tensor begins at byte 0 of its buffer.
  bool has_broadcasts = true;     // Else axes of stride 0 are stored in full.
  bool has_layouts = true;        // Else everything is dense.
  bool has_equal_rows = false;    // All rows of all tensors lie equally far apart.
  bool has_empty_buffers = true;  // Else a tensor without elements has no buffer.
  Edge edge = Edge::kNone;        // Where tensors and workspace meet pages without access.
};

// What was seen after the launches of one variant, output by output.
struct OutputView {
  std::string_view name;
  bp_dtype dtype;
  Shape shape;
  std::vector<DoubleDouble> value;  // Of the last launch.
  std::vector<uint64_t> bits;
  bool is_poisoned = true;         // Else it was an input as well, and held that.
  std::vector<bool> is_unwritten;  // Still what it was before, after both launches.
  bool is_repeatable = true;       // Both launches gave the same bits.
};

struct Observation {
  bp_status launch_status = BP_OK;
  bp_status stream_status = BP_OK;
  std::string status_text;
  bp_kernel_sources source = 0;
  const bp_kernel* kernel = nullptr;
  std::vector<OutputView> outputs;
  std::string damage;          // A sentence about the first damaged canary; "" if all are whole.
  std::string modified_input;  // The same about inputs.
};

// Thrown where no kernel takes the call; `what` is the host's explanation.
struct NoKernel {
  std::string what;
};

// Launches the call of `op_case` on `data` twice, over two kinds of poison.
Observation observe(Context& t, const OpCase& op_case, const CallData& data,
                    const Variant& variant);

// What a kernel did that claims the call as data, and whose supports() refuses it all the same.
struct Refused {
  std::string kernel;
  std::string reason;
  Observation seen;
};

// Launches the call once more where that is so: what works should be claimed.
std::optional<Refused> observe_refused(Context& t, const OpCase& op_case, const CallData& data);

// Whether a kernel of the backend, or of `sources`, takes the call. Tensors have no memory.
bool is_served(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant,
               bp_kernel_sources sources);

// What a kernel of the backend says to launch flags, and of tensors without memory.
struct Probe {
  bool has_kernel = false;
  bp_status status = BP_OK;  // Of a launch with the flags.
  std::string text;
  bool is_untouched = true;          // The outputs are what they were.
  bp_reason with_buffers = nullptr;  // What supports() answers; NULL as well if there is none.
  bp_reason without_buffers = nullptr;
};
Probe probe_kernel(Context& t, const OpCase& op_case, const CallData& data, bp_launch_flags flags);

// What a kernel did with a call that it had planned before.
struct Planned {
  std::string kernel;      // "" if the backend has none for the call.
  bool has_plans = false;  // Of its kernel, for any call.
  std::string refusal;     // Why it makes no plan of this one; "" if it did.
  Observation seen;        // Of two launches with one plan.
};

// `constants`: bit i is set if tensor argument i is declared constant.
Planned observe_planned(Context& t, const OpCase& op_case, const CallData& data,
                        uint64_t constants);

}  // namespace bp::conformance

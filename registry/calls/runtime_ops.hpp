// The ops that backends and programs describe at run time. All registries of this copy of the
// library share them, because the functions of host.h that take the number of an op have no
// registry.
//
// Readers take no lock. A number stands for one name for ever, and neither a name nor a description
// is ever freed: programs hold them, and a launch on another thread may read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/kernel.h"
#include "backplane/operator.h"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

struct FrameMember;
struct RuntimeOp;

// Returns the row of an op that was described at run time, or NULL if nobody who is alive has
// described it. find_op() calls it.
const OpRow* find_runtime_op(uint32_t op);

inline bool is_runtime_op(const OpRow& row) { return row.op >= kFirstRuntimeOp; }

const RuntimeOp& runtime_op(const OpRow& row);

// Returns the number of a name, also without a living owner, or 0.
uint32_t runtime_op_number(std::string_view name);

// Returns the name of a number, also without a living owner, or NULL.
const char* runtime_op_name(uint32_t op);

// Returns the rows of all ops with a living owner.
std::vector<const OpRow*> runtime_op_rows();

const bp_op_desc& runtime_desc(const OpRow& row);
std::span<const FrameMember> runtime_members(const OpRow& row);

// Returns whether a kernel names its op, which was described at run time.
inline bool names_its_op(const bp_kernel& kernel) {
  return kernel.op == 0 &&
         kernel.struct_size >= offsetof(bp_kernel, op_name) + sizeof(kernel.op_name) &&
         kernel.op_name != nullptr;
}

// Returns the number of the op of a kernel; 0 if it names an op that was never described.
inline uint32_t op_of(const bp_kernel& kernel) {
  if (kernel.op != 0 || !names_its_op(kernel)) return kernel.op;
  return runtime_op_number(kernel.op_name);
}

// The descriptions that one owner, a plugin or a registry, has given. They end with this object.
class OwnedOps {
 public:
  OwnedOps() = default;
  OwnedOps(OwnedOps&&) = default;
  OwnedOps& operator=(OwnedOps&& other) noexcept;
  ~OwnedOps() { end(); }

  // Adds `theirs`. Returns "" and the number of the op, or why the description is rejected.
  std::string add(const bp_op_desc& theirs, uint32_t* out_op);

  // Ends the descriptions. Waits for calls of their infer().
  void end();

  bool is_empty() const { return owned_.empty(); }

 private:
  struct Owned {
    uint32_t op = 0;
    uint64_t owner = 0;
  };
  std::vector<Owned> owned_;
};

// The descriptions of one call of add_ops().
struct DescribedOps {
  uint64_t count;
  const bp_op_desc* first;
  uint64_t stride_bytes;
};

// Adds `described` to `owned`, and calls report(index, name, refusal) for each; the refusal of an
// accepted op is "".
bp_status add_described_ops(
    OwnedOps& owned, const DescribedOps& described, uint32_t* out_ops,
    const std::function<void(uint64_t, const std::string&, const std::string&)>& report);

// Calls the infer() of the newest description of `op` that has one and an owner.
bp_status call_infer(const RuntimeOp& op, const void* frame, bp_op_output* out_outputs);

}  // namespace bp::core

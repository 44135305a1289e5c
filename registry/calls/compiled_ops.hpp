// Ops of a device that has a compiler and no kernel of its own for them. Each call runs as a
// program of one node. The program is compiled when a frame with new dtypes, shapes, strides or
// attributes comes, and is kept.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "backplane/host.h"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

// Thread-safe. It must end before the backend does.
class CompiledOps {
 public:
  // The number of frames that are remembered. When there are more, all are forgotten and compiled
  // again.
  static constexpr size_t kMaxPrograms = 4096;

  CompiledOps(const bp_compiler_ops& compiler, bp_device* device);
  CompiledOps(const CompiledOps&) = delete;

  // Returns the kernel of the op in the backend's name. Inline scalars reach it as tensors: a
  // program has them as inputs, so one program serves every value.
  const bp_kernel* kernel(const OpRow& row) const { return &kernels_[row.index]; }

 private:
  struct Program;
  using Key = std::vector<uint64_t>;

  // The state by which the kernel of an op finds its op.
  struct Op {
    CompiledOps* owner;
    const OpRow* row;
  };

  static const Op& op_of(const bp_kernel* kernel) { return *static_cast<const Op*>(kernel->state); }

  // What a program depends on: the flags and the frame without its memory, and which tensors are
  // one.
  static Key key_of(const OpRow& row, bp_launch_flags flags, const void* args,
                    const std::vector<const bp_tensor*>& tensors);

  // NULL if it was not asked for yet.
  std::shared_ptr<const Program> find_known(const Key& key);

  // The program of a frame, or why there is none. Never NULL.
  std::shared_ptr<const Program> find(const OpRow& row, bp_launch_flags flags, const void* args);
  // Of all flags for which the frame was asked; of none, where it was not yet.
  std::vector<std::shared_ptr<const Program>> programs_of(const OpRow& row, const void* args);
  std::shared_ptr<const Program> compile(const OpRow& row, bp_launch_flags flags, const void* args,
                                         const std::vector<const bp_tensor*>& tensors) const;

  bp_kernel make_kernel(const Op& op) const;
  static bp_reason supports(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                            const void* args);
  static bp_status workspace_size(const bp_kernel* self, bp_device* device, const void* args,
                                  uint64_t* out_required_bytes, uint64_t* out_preferred_bytes);
  static bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args);

  const bp_compiler_ops compiler_;
  bp_device* const device_;
  std::vector<Op> ops_;
  std::vector<bp_kernel> kernels_;  // Indexed by OpRow::index.

  std::mutex mutex_;
  std::map<Key, std::shared_ptr<const Program>> programs_;  // Guarded by mutex_.
};

}  // namespace bp::core

// Runs ops for which a device has a compiler and no kernel. Each call runs as a program of one
// node. A program is compiled for the first frame with certain dtypes, shapes, strides and
// attributes, and is kept for later frames.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backplane/host.h"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

// The kernels and programs of one device. It is thread-safe, and must end before the backend.
class CompiledOps {
 public:
  // How many programs are kept. When one more is needed, all are forgotten, and each is compiled
  // again when it is needed.
  static constexpr size_t kMaxPrograms = 4096;

  CompiledOps(const bp_compiler_ops& compiler, bp_device* device);
  CompiledOps(const CompiledOps&) = delete;

  // Returns the kernel of an op, which counts as a kernel of the backend. It takes inline scalars
  // as tensors, an operand in acc(x). They are inputs of the program, so one program serves every
  // value.
  const bp_kernel* kernel(const OpRow& row);

  // Returns that kernel alone, for an op that was described at run time.
  const std::vector<const bp_kernel*>& runtime_kernels(const OpRow& row);

  // Returns whether kernel() gave this kernel.
  static bool is_own(const bp_kernel& kernel) { return kernel.launch == launch; }

  // Returns how many launches of an op were submitted.
  uint64_t launch_count(const OpRow& row) const {
    return launch_counts_[row.index].load(std::memory_order_relaxed);
  }

  // Keeps a program for the graph of the capture to which a stream belongs, if it belongs to one.
  using Keep = std::function<bp_status(bp_stream* stream, std::shared_ptr<const void> program)>;

  // Sets what is called for each program that was launched. No other thread may use this object
  // yet.
  void set_keep(Keep keep) { keep_ = std::move(keep); }

  // Releases all programs. Each is compiled again when it is needed.
  void forget_programs();

 private:
  struct Program;
  using Key = std::vector<uint64_t>;

  // The state by which the kernel of an op finds its op.
  struct Op {
    CompiledOps* owner = nullptr;
    const OpRow* row = nullptr;
  };

  struct RuntimeKernel {
    Op op;
    bp_kernel kernel{};
    std::vector<const bp_kernel*> list;
  };

  static const Op& op_of(const bp_kernel* kernel) { return *static_cast<const Op*>(kernel->state); }

  // Returns what a program depends on: the flags, the frame without its memory, and which of the
  // tensors are the same tensor.
  static Key key_of(const OpRow& row, bp_launch_flags flags, const void* args,
                    const std::vector<const bp_tensor*>& tensors);

  // Returns the program of a key, or NULL if it is not known.
  std::shared_ptr<const Program> find_known(const Key& key);

  // Returns the program of a frame, which is compiled if it is not known. Never returns NULL: if it
  // cannot be compiled, the program has the reason.
  std::shared_ptr<const Program> find(const OpRow& row, bp_launch_flags flags, const void* args);

  std::shared_ptr<const Program> compile(const OpRow& row, bp_launch_flags flags, const void* args,
                                         const std::vector<const bp_tensor*>& tensors) const;

  bp_kernel make_kernel(const Op& op) const;
  static bp_reason supports(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                            const void* args);
  static bp_status workspace_size(const bp_kernel* self, bp_device* device, bp_launch_flags flags,
                                  const void* args, uint64_t* out_required_bytes,
                                  uint64_t* out_preferred_bytes);
  static bp_status launch(const bp_kernel* self, const bp_launch* launch, const void* args);

  const bp_compiler_ops compiler_;
  bp_device* const device_;
  Keep keep_;
  std::vector<Op> ops_;
  std::vector<bp_kernel> kernels_;                    // OpRow::index is their index.
  std::vector<std::atomic<uint64_t>> launch_counts_;  // The same.

  std::mutex mutex_;
  // mutex_ guards both.
  std::map<Key, std::shared_ptr<const Program>> programs_;
  std::map<const OpRow*, RuntimeKernel> runtime_kernels_;
};

}  // namespace bp::core

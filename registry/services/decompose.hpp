// Ops that run as other ops. This header has what the emitted decompositions are written with:
// intermediate tensors, views, and calls of ops; and the kernels that run them.
#pragma once

#include <cstring>
#include <deque>

#include "backplane/host.h"
#include "backplane/ops.h"
#include "ops_spec/dims.hpp"
#include "registry/services/caching_allocator.hpp"

namespace bp::services {

// Ends a decomposition; the text is in the error slot.
struct Failed {
  bp_status status;
};

// One run of a decomposition. Intermediate tensors live as long as it does: their memory goes back
// to the cache, whose next user on this stream comes behind the work.
class Evaluator {
 public:
  Evaluator(const bp_target& target, bp_stream* stream, bp_launch_flags flags)
      : target_(target), stream_(stream), flags_(flags) {}

  // What a caller may choose of an output: 0 and nullptr leave it to the op.
  struct Choice {
    bp_dtype dtype = 0;
    const dims::Dims* shape = nullptr;
  };

  // Runs `op` with `args`, whose member `output` gets a new tensor, or `into` if that is given.
  template <typename Args>
  const bp_tensor* call(uint32_t op, Args args, const bp_tensor* Args::*output, Choice choice,
                        const bp_tensor* into) {
    args.struct_size = sizeof(Args);
    if (into == nullptr) {
      const bp_tensor chosen = choose(choice);
      args.*output = choice.dtype != 0 || choice.shape != nullptr ? &chosen : nullptr;
      into = make(infer(op, &args));
    }
    args.*output = into;
    launch(op, &args);
    return into;
  }

  const bp_tensor* reshape(const bp_tensor* x, dims::View shape);  // Copies if it must.
  const bp_tensor* expand(const bp_tensor* x, dims::View shape);
  const bp_tensor* permute(const bp_tensor* x, dims::View axes);
  const bp_tensor* transpose(const bp_tensor* x);
  const bp_tensor* slice(const bp_tensor* x, int64_t axis, int64_t start, int64_t stop);

  // Copies `value` to the output `y`, unless it was computed there or is not wanted.
  void store(const bp_tensor* value, const bp_tensor* y);

 private:
  struct Stored {
    bp_tensor tensor;
    int64_t shape[BP_MAX_RANK], strides[BP_MAX_RANK];
    BlockHandle block;
  };

  bp_op_output infer(uint32_t op, const void* args);
  void launch(uint32_t op, const void* args);
  bp_tensor choose(const Choice& choice);
  const bp_tensor* make(const bp_op_output& like);
  Stored& copy_of(const bp_tensor& x, int64_t ndim);

  const bp_target& target_;
  bp_stream* stream_;
  bp_launch_flags flags_;
  std::deque<Stored> tensors_;  // Does not move them.
};

// A list that outlives the expression it comes from.
inline dims::Dims to_dims(dims::View view) { return dims::Dims(view); }

inline bp_scalar to_scalar(int64_t value) { return {BP_I64, 0, static_cast<uint64_t>(value)}; }
inline bp_scalar to_scalar(double value) {
  bp_scalar scalar{BP_F64, 0, 0};
  std::memcpy(&scalar.bits, &value, sizeof(value));
  return scalar;
}

// An emitted decomposition.
struct Decomposition {
  uint32_t op;
  uint32_t version;
  uint32_t args_size_bytes;
  void (*run)(Evaluator& e, const void* frame);
};
extern const Decomposition kDecompositions[];
extern const size_t kDecompositionCount;

// The kernel that runs `op` as other ops; nullptr where there is none. Static, and for every
// backend: launch() finds its target in bp_launch::next, which is the bp_target itself. Answers
// BP_UNSUPPORTED before it has submitted anything.
const bp_kernel* decomposition(uint32_t op);

}  // namespace bp::services

// Runs ops as sequences of other ops. The emitted decompositions use this header for intermediate
// tensors, views and calls of ops. It also has the kernels that run decompositions.
#pragma once

#include <cstring>
#include <deque>
#include <string>

#include "backplane/host.h"
#include "backplane/ops.h"
#include "ops_spec/dims.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/calls/op_rows.hpp"
#include "registry/services/caching_allocator.hpp"

namespace bp::services {

// The exception that ends a decomposition. The text is in the error slot.
struct Failed {
  bp_status status;
};

// Where a decomposition runs: on a stream; or nowhere, as nodes of a program or as a question for
// the kernels of its parts.
class DecompositionPlace {
 public:
  DecompositionPlace() = default;
  DecompositionPlace(const DecompositionPlace&) = delete;
  virtual ~DecompositionPlace() = default;

  // Gives a new row-major tensor its memory.
  virtual void place(bp_tensor& tensor) = 0;
  // Runs `op` with a frame whose tensors all have memory.
  virtual void launch(uint32_t op, const void* args) = 0;
};

// On a stream, with memory of the cache.
class StreamPlace final : public DecompositionPlace {
 public:
  StreamPlace(const bp_target& target, bp_stream* stream, bp_launch_flags flags)
      : target_(target), stream_(stream), flags_(flags) {}
  void place(bp_tensor& tensor) override;
  void launch(uint32_t op, const void* args) override;

 private:
  const bp_target& target_;
  bp_stream* stream_;
  bp_launch_flags flags_;
  std::deque<BlockHandle> blocks_;
};

// One run of a decomposition. Intermediate tensors live as long as this object and its place, and
// then their memory goes back to the cache. The next work on the stream that uses this memory runs
// after the work of the decomposition.
class Evaluator {
 public:
  explicit Evaluator(DecompositionPlace& where) : where_(where) {}

  // What a caller may choose of an output. If a member is 0 or NULL, the op chooses.
  struct Choice {
    bp_dtype dtype = 0;
    const dims::Dims* shape = nullptr;
  };

  // Runs `op` with `args`, and returns its output. The output is `into`, or a new tensor if `into`
  // is NULL.
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

  // These return views of x. reshape() copies if the strides of x allow no view.
  const bp_tensor* reshape(const bp_tensor* x, dims::View shape);
  const bp_tensor* expand(const bp_tensor* x, dims::View shape);
  const bp_tensor* permute(const bp_tensor* x, dims::View axes);
  const bp_tensor* transpose(const bp_tensor* x);
  const bp_tensor* slice(const bp_tensor* x, int64_t axis, int64_t start, int64_t stop);

  // Copies `value` to the output `y`, unless it was computed there or is not wanted.
  void store(const bp_tensor* value, const bp_tensor* y);

  // make() and make_like() return a new tensor, the latter of the shape of `x`. cast() returns one
  // with the elements of `x` in `dtype`.
  const bp_tensor* make(const bp_op_output& like);
  const bp_tensor* make_like(const bp_tensor& x, bp_dtype dtype);
  const bp_tensor* cast(const bp_tensor* x, bp_dtype dtype);

  // Runs `op` with a frame whose tensors all exist.
  void launch(uint32_t op, const void* args) { where_.launch(op, args); }

  // Checks a frame, and returns dtype and shape of the first output of `op`.
  static bp_op_output infer(uint32_t op, const void* args);

  // Returns a tensor without memory that has the dtype and the shape that the caller chose.
  static bp_tensor choose(const Choice& choice);

 private:
  struct Stored {
    bp_tensor tensor;
    int64_t shape[BP_MAX_RANK], strides[BP_MAX_RANK];
  };

  Stored& copy_of(const bp_tensor& x, int64_t ndim);

  DecompositionPlace& where_;
  std::deque<Stored> tensors_;  // A deque does not move its elements.
};

// A link of a launch whose parts go to `place`, and not to the stream. The bp_target is behind it.
// No kernel of a backend ever sees it.
struct PlaceLink {
  static constexpr uint32_t kType = 0x001000FF;  // Of the block of backplane/host.h, never public.

  PlaceLink(const bp_target& target, DecompositionPlace& where) : next(&target), place(&where) {}

  uint32_t struct_size = sizeof(PlaceLink), struct_type = kType;
  const void* next;
  DecompositionPlace* place;
};

// Returns the target of a launch of the host's own kernels, or NULL if the launch has none.
inline const bp_target* target_of(const bp_launch& launch) {
  return static_cast<const bp_target*>(bp_link_find(launch.next, BP_STRUCT_TARGET));
}

// Runs body(Evaluator&) for a launch of the host's kernel `name`.
template <typename Body>
bp_status evaluate(const bp_launch& launch, const char* name, Body&& body) {
  const bp_target* const target = target_of(launch);
  if (target == nullptr) {
    return fail(BP_INVALID_ARGUMENT, std::string(name) + ": the launch has no target");
  }
  return core::guarded([&]() -> bp_status {
    try {
      StreamPlace on_stream(*target, launch.stream, launch.flags);
      const auto* const link =
          static_cast<const PlaceLink*>(bp_link_find(launch.next, PlaceLink::kType));
      Evaluator e(link == nullptr ? on_stream : *link->place);
      body(e);
      return BP_OK;
    } catch (const Failed& failed) {
      return failed.status;
    }
  });
}

// Returns a copy of a list, which lives longer than the expression that made the list.
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
  uint32_t spec_revision;    // The revision for which the formula was written.
  uint32_t args_size_bytes;  // The size of the frame in that revision.
  void (*run)(Evaluator& e, const void* frame);
  // Returns whether the formula serves the call; NULL if it serves every call.
  bool (*applies)(const void* frame);
  const char* refusal;  // Why it does not.
};
extern const Decomposition kDecompositions[];
extern const size_t kDecompositionCount;

// Returns the kernel that runs an op as other ops, or NULL if there is none. All backends share it:
// bp_launch::next points to the bp_target of the launch.
const bp_kernel* decomposition(const core::OpRow& row);

// Runs the decomposition of an op that has one, for a frame of the size that its kernel has.
void run_decomposition(Evaluator& e, const core::OpRow& row, const void* frame);

}  // namespace bp::services

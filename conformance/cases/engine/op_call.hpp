// The tensors of one call of an op in guarded memory.
#pragma once

#include <list>
#include <memory>
#include <string>
#include <vector>

#include "conformance/cases/engine/op_launch.hpp"

namespace bp::conformance {

// A stream of its own for each case: when it ends, a failure on it ends too.
class CaseStream {
 public:
  explicit CaseStream(Context& t) : target_(t.target()) {
    const bp_stream_ops& streams = *target_.streams;
    t.require_ok(streams.create(streams.self, target_.device, nullptr, &stream_), "stream.create");
  }
  ~CaseStream() { static_cast<void>(target_.streams->destroy(target_.streams->self, stream_)); }
  CaseStream(const CaseStream&) = delete;
  CaseStream& operator=(const CaseStream&) = delete;

  bp_stream* get() const { return stream_; }

 private:
  const bp_target& target_;
  bp_stream* stream_ = nullptr;
};

// Returns a place where workspace is aligned to 256 bytes, and tensors to the alignment of the
// heap.
MemoryPlace memory_place(const Context& t, bp_stream* stream);

// Returns a sentence about damage to the memory called `name`.
std::string damage_text(std::string_view name, const Damage& damage);

// The tensors of a call in guarded memory, and the frame that names them.
class Call {
 public:
  Call(Context& t, const OpCase& op_case, const CallData& data, const Variant& variant,
       bp_stream* stream);

  const Frame& frame() const { return frame_; }
  const MemoryPlace& place_in() const { return place_; }

  // Removes the memory of every tensor of the frame.
  void strip_buffers();

  // Gives every tensor of the frame links that nobody knows, and that may be ignored.
  void add_ignorable_links();

  // Moves inline scalars into tensors, as the host does for a kernel with these flags that does not
  // take inline scalars.
  void materialize_scalars(bp_kernel_flags flags);

  // Uploads the inputs and poisoned outputs, with this pattern outside of the elements.
  void prepare(Poison poison, Surroundings around = Surroundings::kNan);
  void finish(bp_stream* reader = nullptr);
  void look(bool is_first, Observation& seen) const;
  bool is_untouched() const;  // Returns whether no byte at all has changed.

 private:
  struct Slot {
    const TensorArgument* argument;  // NULL for a scalar.
    const HostTensor* host;
    std::shared_ptr<GuardedTensor> memory;
    bool is_shared = false;  // The output lies in the memory of an input.
  };

  void add(const TensorArgument& argument, const HostTensor& host, const Variant& variant,
           int64_t row_stride);
  void set_tensor(std::string_view name, const bp_tensor* tensor);
  const bp_tensor* without_buffer(const GuardedTensor& memory);
  bp_dtype dtype_of_scalar(const FrameMember& member, bp_kernel_flags flags) const;
  bool is_output(const Slot& slot) const { return slot.host->role != Role::kInput; }

  Context& t_;
  const OpCase& case_;
  const CallData& data_;
  MemoryPlace place_;
  Frame frame_;
  std::vector<Slot> slots_;
  std::vector<HostTensor> scalars_;
  std::list<bp_tensor> stripped_, linked_;
};

}  // namespace bp::conformance

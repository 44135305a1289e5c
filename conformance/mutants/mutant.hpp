// Backends that are broken on purpose: each is a good backend with one behaviour changed.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/backend.h"
#include "conformance/faults/fault.hpp"

namespace bp::mutants {

struct Runtime;
struct Wrapped;

// A launch of the good backend, with what a mutant needs to change it.
struct Call {
  const Wrapped& wrapped;
  const bp_launch* launch;

  // Passes `args` to the good kernel.
  bp_status run(const void* args) const;

  // Overwrites `range` with 0x5A after the work of the launch.
  bp_status scribble(const bp_buffer_ref& range) const;
};

// One mutant. `strength` is the text behind the colon of its option: "" is the gross form.
struct Mutant {
  std::string_view id;
  std::span<const uint32_t> ops;  // The ops whose kernels it replaces; empty: every kernel.
  bp_status (*launch)(const Call& call, std::string_view strength, const void* args);
  uint64_t extra_workspace_bytes = 0;     // The workspace that it needs in addition to that of the
                                          // good kernel.
  const bp_numerics* numerics = nullptr;  // The declaration of the mutant; NULL: that of the good
                                          // kernel.
  uint64_t alignment_bytes = 0;           // The alignment that it claims; 0: that of the good
                                          // kernel.
  uint32_t link_type = 0;                 // The link that its kernels say they know; 0: none.
  bool spoils_packed = false;             // It keeps plans; their packed memory is wrong.
  void (*declare)(bp_kernel& kernel) = nullptr;  // Changes what its kernels say; NULL: nothing.
  // Returns whether it replaces the kernels of an op besides `ops`; NULL: those of `ops` alone.
  bool (*replaces)(uint32_t op, std::string_view strength) = nullptr;
  bool keeps_plans = false;  // Launches with a plan get the frame of the plan.
  // Returns a kernel that the good backend lacks, for the mutant to launch; NULL: it adds none.
  const bp_kernel* (*adds)(std::string_view strength) = nullptr;
};

// Return the tables of mutants that change tensors, that change numbers, that compute functions
// wrongly, that find and select wrongly, that break the ops of language models and of training,
// that compute in another way, that do not compute, and that launch wrongly.
std::span<const Mutant> layout_mutants();
std::span<const Mutant> arithmetic_mutants();
std::span<const Mutant> function_mutants();
std::span<const Mutant> index_mutants();
std::span<const Mutant> language_mutants();
std::span<const Mutant> training_mutants();
std::span<const Mutant> algorithm_mutants();
std::span<const Mutant> caching_mutants();
std::span<const Mutant> launch_mutants();

// Returns the mutants that add kernels, wrong ones and right ones, for ops that the good backend
// leaves to their decompositions.
std::span<const Mutant> own_kernels();

// Return the tables of benign variants, on which no case may fail: of what kernels say, and of how
// they compute.
std::span<const Mutant> benign_kernels();
std::span<const Mutant> benign_algorithms();

// A launch that a mutant remembers for the next ones.
struct Kept {
  std::vector<std::byte> key;
  std::vector<std::byte> result;
};

// A kernel of the good backend with the launch of a mutant. `kernel` is the kernel that the host
// sees.
struct Wrapped {
  bp_kernel kernel;
  const bp_kernel* good;
  const Mutant* mutant;
  std::string_view strength;
  const bp_allocator_ops* allocator;  // The allocator of the good backend.
  const bp_stream_ops* streams;       // The streams of the good backend.
  const bp_event_ops* events;         // The events of the good backend.
  const bp_host* host;
  faults::Sightings* sightings;
  Runtime* runtime;  // NULL for mutants of ops.
  mutable std::mutex mutex;
  mutable std::deque<Kept> kept;        // Guarded by mutex; the newest is the last.
  mutable std::shared_ptr<void> state;  // What the mutant keeps. Guarded by mutex.
};

// Returns the bytes of one element. An element of less than a byte counts as a byte.
int64_t item_size_bytes(bp_dtype dtype);

// A copy of a tensor whose shape, strides and offset can be changed.
class View {
 public:
  explicit View(const bp_tensor& tensor);
  View(const View&) = delete;

  const bp_tensor* get() const { return &tensor_; }
  uint32_t rank() const { return tensor_.ndim; }
  int64_t& extent(uint32_t axis) { return shape_[axis]; }
  int64_t& stride(uint32_t axis) { return strides_[axis]; }
  uint64_t& byte_offset() { return tensor_.byte_offset; }

  // Moves the origin of the view by `elements`.
  void advance(int64_t elements);

  // Reads the axis from its last element to its first.
  void reverse(uint32_t axis);

  int64_t element_count() const;

  // Returns the bytes of one element.
  int64_t item_size_bytes() const;

 private:
  bp_tensor tensor_;
  std::array<int64_t, BP_MAX_RANK> shape_{}, strides_{};
};

}  // namespace bp::mutants

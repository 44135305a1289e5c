// Calls of an op that a backend described at run time, made from its description alone: shapes and
// attributes are drawn until the description accepts them.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "backplane/registry.hpp"
#include "conformance/case.hpp"

namespace bp::conformance {

// One tensor argument of a call.
struct DescribedTensor {
  const bp_op_argument* argument = nullptr;
  size_t index = 0;  // Of the argument in the description.
  bool is_output = false;
  bool is_given = true;  // Optional tensors may be absent.
  bp_dtype dtype = 0;
  std::vector<int64_t> shape;
};

// What a call gives: tensors without memory, and the values of attributes.
struct DescribedPlan {
  const bp_op_desc* op = nullptr;
  std::vector<DescribedTensor> tensors;
  std::vector<uint64_t> frame;              // Attributes and inline scalars.
  std::vector<std::vector<int64_t>> lists;  // The values of lists of integers, by argument.
};

// A frame of a plan whose tensors have no memory. Outputs are left out unless `has_outputs`, or the
// caller chooses something of them.
class BareFrame {
 public:
  BareFrame(const DescribedPlan& plan, bool has_outputs);
  BareFrame(const BareFrame&) = delete;

  const void* data() const { return words_.data(); }

 private:
  std::vector<uint64_t> words_;
  std::vector<bp_tensor> tensors_;
  std::vector<std::vector<int64_t>> strides_;
};

// Returns the description of each op of this device's kernels that was described at run time.
std::vector<const bp_op_desc*> described_ops(const bp_target& target);

// Draws a call that a kernel of the target takes, with row-major tensors; nothing if none is found.
std::optional<DescribedPlan> draw_plan(const bp_target& target, const bp_op_desc& op,
                                       std::mt19937_64& random);

// A layout of tensors: the strides of an axis times `step`, in reverse order of axes, and the first
// element behind `origin` elements.
struct DescribedLayout {
  const char* name = "contiguous";
  int64_t step = 1;
  bool is_reversed = false;
  int64_t origin = 0;
};

// The memory of a call on one device.
class DescribedCall {
 public:
  // Fills the inputs with values that depend on `seed` alone, and outputs with another pattern. If
  // `shares` is not negative, the output of this index in the plan has the memory of that input.
  DescribedCall(Context& t, const bp_target& target, const DescribedPlan& plan,
                const DescribedLayout& layout, uint64_t seed, int64_t output = -1,
                int64_t shared_input = -1);

  const void* frame() const { return frame_.data(); }
  std::vector<uint64_t>& words() { return frame_; }
  bp_tensor& tensor(size_t i) { return memory_[i].tensor; }

  // Launches by a kernel of these sources, and waits. Returns BP_UNSUPPORTED if there is none.
  bp_status launch(bp_kernel_sources sources);

  // Returns the elements of output `i` of the plan, in row-major order.
  std::vector<std::vector<std::byte>> elements(size_t i) const;

  // Returns the name of a tensor beside whose elements bytes were written, or "".
  std::string stray_write() const;

 private:
  struct Memory {
    std::vector<int64_t> strides;
    BlockHandle block;
    bp_tensor tensor{};
    std::vector<std::byte> before;
  };

  void place(size_t i, const DescribedLayout& layout, uint64_t seed);
  void upload(Memory& memory) const;
  std::vector<std::byte> download(const Memory& memory) const;
  void write_frame();

  Context& t_;
  const bp_target& target_;
  const DescribedPlan& plan_;
  std::vector<Memory> memory_;
  std::vector<uint64_t> frame_;
};

}  // namespace bp::conformance

// Programs of a few element-wise nodes for the cases of compiler.h, and memory to launch them on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "backplane/compiler.h"
#include "backplane/ops.h"
#include "conformance/cases/fixtures.hpp"

namespace bp::conformance {

inline constexpr int64_t kProgramCount = 100;
inline constexpr int64_t kProgramShape[] = {kProgramCount};
inline constexpr int64_t kProgramStrides[] = {1};
inline constexpr uint64_t kProgramBytes = kProgramCount * sizeof(float);

// Ends the case as NotSupported where the device has no compiler.
const bp_compiler_ops& compiler_table(Context& t);

// A program under construction; values are vectors of kProgramCount.
class ProgramMaker {
 public:
  uint32_t add_value(bp_value_role role, const void* data = nullptr, bp_dtype dtype = BP_F32);

  // A node of an op whose frame is that of add.
  void add_node(uint32_t op, uint32_t a, uint32_t b, uint32_t y);

  // Valid until something is added.
  const bp_compile_desc& desc();

  size_t node_count() const { return nodes_.size(); }

 private:
  const bp_tensor* view(uint32_t value);

  std::vector<bp_program_value> values_;
  std::vector<bp_program_node> nodes_;
  std::deque<bp_tensor> tensors_;
  std::deque<bp_add_args> frames_;
  std::deque<std::vector<uint32_t>> lists_;
  bp_program program_{};
  bp_compile_desc desc_{};
};

struct ExecutableEnd {
  const bp_compiler_ops* ops;
  void operator()(bp_executable* executable) const {
    static_cast<void>(ops->release(ops->self, executable));
  }
};
using OwnedExecutable = std::unique_ptr<bp_executable, ExecutableEnd>;

// What query() says of each node.
std::vector<bp_reason> query_program(Context& t, ProgramMaker& maker);

// Ends the case as NotSupported where query() refuses a node.
OwnedExecutable compile_program(Context& t, ProgramMaker& maker);

// Memory for the launches of an executable with some inputs and one output.
class ProgramRunner {
 public:
  ProgramRunner(Context& t, const OwnedExecutable& executable,
                const std::vector<std::vector<uint8_t>>& inputs);

  const bp_kernel& kernel() const { return *kernel_; }
  bp_stream* stream() const { return stream_.get(); }
  std::vector<bp_tensor>& tensors() { return tensors_; }

  bp_program_args args() const;

  bp_status launch(bp_launch_flags flags = 0) const { return launch(args(), flags); }
  bp_status launch(const bp_program_args& frame, bp_launch_flags flags = 0) const;

  std::vector<uint8_t> output() const;

 private:
  Context& t_;
  OwnedStream stream_;
  const bp_kernel* kernel_ = nullptr;
  std::deque<OwnedBuffer> buffers_;
  std::deque<OwnedBuffer> workspace_buffer_;
  bp_buffer_ref workspace_{};
  std::vector<bp_tensor> tensors_;
};

}  // namespace bp::conformance

#include "conformance/cases/program_fixtures.hpp"

#include <string>

namespace bp::conformance {

const bp_compiler_ops& compiler_table(Context& t) {
  if ((t.target().table_mask >> BP_STRUCT_COMPILER_OPS & 1) == 0) {
    t.not_supported("the device has no compiler");
  }
  return *t.target().compiler;
}

uint32_t ProgramMaker::add_value(bp_value_role role, const void* data, bp_dtype dtype) {
  values_.push_back({.struct_size = sizeof(bp_program_value),
                     .struct_type = BP_STRUCT_PROGRAM_VALUE,
                     .shape = kProgramShape,
                     .data = data,
                     .dtype = dtype,
                     .ndim = 1,
                     .role = role});
  return static_cast<uint32_t>(values_.size() - 1);
}

void ProgramMaker::add_node(uint32_t op, uint32_t a, uint32_t b, uint32_t y) {
  bp_add_args& frame = frames_.emplace_back();
  frame = {.struct_size = sizeof(frame), .a = view(a), .b = view(b), .y = view(y)};
  const std::vector<uint32_t>& list = lists_.emplace_back(std::vector<uint32_t>{a, b, y});
  nodes_.push_back({.struct_size = sizeof(bp_program_node),
                    .struct_type = BP_STRUCT_PROGRAM_NODE,
                    .args = &frame,
                    .values = list.data(),
                    .value_count = list.size(),
                    .op = op,
                    .op_version = 1});
}

const bp_compile_desc& ProgramMaker::desc() {
  program_ = {.struct_size = sizeof(program_),
              .struct_type = BP_STRUCT_PROGRAM,
              .values = values_.data(),
              .value_count = values_.size(),
              .value_stride_bytes = sizeof(bp_program_value),
              .nodes = nodes_.data(),
              .node_count = nodes_.size(),
              .node_stride_bytes = sizeof(bp_program_node)};
  desc_ = {.struct_size = sizeof(desc_),
           .struct_type = BP_STRUCT_COMPILE_DESC,
           .format = "backplane.graph",
           .data = &program_,
           .size_bytes = sizeof(program_)};
  return desc_;
}

const bp_tensor* ProgramMaker::view(uint32_t value) {
  return &tensors_.emplace_back(bp_tensor{.shape = kProgramShape,
                                          .strides = kProgramStrides,
                                          .ndim = 1,
                                          .dtype = values_[value].dtype});
}

std::vector<bp_reason> query_program(Context& t, ProgramMaker& maker) {
  const bp_compiler_ops& compiler = compiler_table(t);
  std::vector<bp_reason> reasons(maker.node_count(), "not written");
  t.require_ok(compiler.query(compiler.self, t.target().device, &maker.desc(), reasons.size(),
                              reasons.data()),
               "query");
  return reasons;
}

OwnedExecutable compile_program(Context& t, ProgramMaker& maker) {
  const bp_compiler_ops& compiler = compiler_table(t);
  for (const bp_reason reason : query_program(t, maker)) {
    if (reason != nullptr) t.not_supported(std::string("the compiler refuses a node: ") + reason);
  }
  bp_executable* executable = nullptr;
  t.require_ok(compiler.compile(compiler.self, t.target().device, &maker.desc(), &executable),
               "compile");
  return OwnedExecutable(executable, {&compiler});
}

ProgramRunner::ProgramRunner(Context& t, const OwnedExecutable& executable,
                             const std::vector<std::vector<uint8_t>>& inputs)
    : t_(t), stream_(make_stream(t)) {
  const bp_compiler_ops& compiler = compiler_table(t);
  t.require_ok(compiler.executable_kernel(compiler.self, executable.get(), &kernel_),
               "executable_kernel");
  for (size_t i = 0; i <= inputs.size(); ++i) {
    const OwnedBuffer& buffer = buffers_.emplace_back(make_buffer(t, kProgramBytes));
    write(t, stream_.get(), range(buffer, 0, kProgramBytes),
          i < inputs.size() ? inputs[i] : std::vector<uint8_t>(kProgramBytes, 0xFF));
    tensors_.push_back({.buffer = buffer.get(),
                        .shape = kProgramShape,
                        .strides = kProgramStrides,
                        .ndim = 1,
                        .dtype = BP_F32});
  }
  uint64_t required = 0, preferred = 0;
  if (kernel_->workspace_size != nullptr) {
    const bp_program_args frame = args();
    t.require_ok(kernel_->workspace_size(kernel_, t.target().device, &frame, &required, &preferred),
                 "workspace_size");
  }
  if (required != 0) {
    workspace_buffer_.push_back(make_buffer(t, required));
    workspace_ = range(workspace_buffer_.back(), 0, required);
  }
}

bp_program_args ProgramRunner::args() const {
  return {.struct_size = sizeof(bp_program_args),
          .flags = 0,
          .tensors = tensors_.data(),
          .tensor_count = tensors_.size()};
}

bp_status ProgramRunner::launch(const bp_program_args& frame, bp_launch_flags flags) const {
  const bp_launch launch{.device = t_.target().device,
                         .stream = stream_.get(),
                         .workspace = workspace_,
                         .flags = flags};
  return kernel_->launch(kernel_, &launch, &frame);
}

std::vector<uint8_t> ProgramRunner::output() const {
  finish(t_, stream_.get());
  return read(t_, stream_.get(), range(buffers_.back(), 0, kProgramBytes));
}

}  // namespace bp::conformance

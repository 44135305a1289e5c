#include "conformance/cases/abi/described_program.hpp"

namespace bp::conformance {

DescribedProgram::DescribedProgram(const DescribedPlan& plan) : plan_(plan), frame_(plan, true) {
  for (const DescribedTensor& tensor : plan.tensors) {
    names_.push_back(tensor.is_given ? static_cast<uint32_t>(values_.size()) : BP_NO_VALUE);
    if (!tensor.is_given) continue;
    values_.push_back({.struct_size = sizeof(bp_program_value),
                       .struct_type = BP_STRUCT_PROGRAM_VALUE,
                       .shape = tensor.shape.data(),
                       .dtype = tensor.dtype,
                       .ndim = static_cast<uint32_t>(tensor.shape.size()),
                       .role = bp_value_role{tensor.is_output ? BP_VALUE_OUTPUT : BP_VALUE_INPUT}});
  }
  node_ = {.struct_size = sizeof(node_),
           .struct_type = BP_STRUCT_PROGRAM_NODE,
           .args = frame_.data(),
           .values = names_.data(),
           .value_count = names_.size(),
           .op = plan.op->op};
  program_ = {.struct_size = sizeof(program_),
              .struct_type = BP_STRUCT_PROGRAM,
              .values = values_.data(),
              .value_count = values_.size(),
              .value_stride_bytes = sizeof(bp_program_value),
              .nodes = &node_,
              .node_count = 1,
              .node_stride_bytes = sizeof(bp_program_node)};
  desc_ = {.struct_size = sizeof(desc_),
           .struct_type = BP_STRUCT_COMPILE_DESC,
           .format = "backplane.graph",
           .data = &program_,
           .size_bytes = sizeof(program_)};
}

bp_status DescribedProgram::launch(Context& t, const OwnedExecutable& executable,
                                   DescribedCall& call) const {
  const bp_compiler_ops& compiler = compiler_table(t);
  std::vector<bp_tensor> tensors;
  for (const bool is_output : {false, true}) {
    for (size_t i = 0; i < plan_.tensors.size(); ++i) {
      const DescribedTensor& each = plan_.tensors[i];
      if (each.is_given && each.is_output == is_output) tensors.push_back(call.tensor(i));
    }
  }
  const bp_program_args args{.struct_size = sizeof(args),
                             .flags = 0,
                             .tensors = tensors.data(),
                             .tensor_count = tensors.size()};
  const bp_kernel* kernel = nullptr;
  bp_status status = compiler.executable_kernel(compiler.self, executable.get(), &kernel);
  bp_launch launch{.device = t.target().device, .stream = t.target().default_stream};
  BlockHandle workspace;
  uint64_t required = 0, preferred = 0;
  if (status == BP_OK && kernel->workspace_size != nullptr) {
    status = kernel->workspace_size(kernel, launch.device, 0, &args, &required, &preferred);
  }
  if (status == BP_OK && required != 0) {
    bp_block* block = nullptr;
    status = bp_block_allocate(&t.target(), nullptr, required, &block);
    workspace.reset(block);
    if (status == BP_OK) launch.workspace = block->ref;
  }
  if (status == BP_OK) status = kernel->launch(kernel, &launch, &args);
  const bp_stream_ops& streams = *t.target().streams;
  if (status != BP_OK) return status;
  return streams.synchronize(streams.self, launch.stream, UINT64_MAX);
}

}  // namespace bp::conformance

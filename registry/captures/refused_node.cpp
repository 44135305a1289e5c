#include "registry/captures/refused_node.hpp"

#include <vector>

#include "registry/boundary/error_slot.hpp"

namespace bp::core {

bp_status decompose(const Target& target, const bp_compile_desc& desc,
                    DecomposedHandle& out_program, const bp_compile_desc*& out_desc) {
  bp_decomposed_program* program = nullptr;
  const bp_status status = bp_program_decompose(&target, &desc, &program);
  if (status != BP_OK) return status;
  out_program.reset(program);
  return bp_decomposed_program_desc(program, &out_desc);
}

std::string refused_node(const Target& target, const bp_compile_desc& desc,
                         const bp_decomposed_program& decomposed) {
  const auto& program = *static_cast<const bp_program*>(desc.data);
  std::vector<uint32_t> partitions(program.node_count);
  std::vector<bp_reason> reasons(program.node_count);
  uint64_t count = 0;
  const bp_compiler_ops& compiler = target.own_tables.compiler;
  if (compiler.query(compiler.self, target.device, &desc, program.node_count, partitions.data(),
                     reasons.data(), &count) != BP_OK) {
    return take_error();
  }
  for (uint64_t i = 0; i < program.node_count; ++i) {
    if (partitions[i] != BP_NO_PARTITION) continue;
    std::string text =
        "node " + std::to_string(i) + ", " + bp_op_name(program.nodes[i].op) + ", is not taken";
    if (reasons[i] != nullptr) text += std::string(": ") + reasons[i];
    const char* kept = nullptr;
    static_cast<void>(bp_decomposed_program_reason(&decomposed, i, &kept));
    return kept == nullptr ? text : text + "; and it is not decomposed: " + kept;
  }
  return "";
}

}  // namespace bp::core

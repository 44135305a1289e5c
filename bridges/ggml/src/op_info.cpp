#include "op_info.h"

#include <map>
#include <mutex>

#include "backplane/host.h"
#include "log.h"

namespace bpg {
namespace {

OpInfo read(uint32_t op) {
  const bp_op_desc* desc = nullptr;
  check(bp_op_describe(op, &desc), "op_describe");
  OpInfo info;
  for (uint32_t i = 0; i < desc->argument_count; ++i) {
    const auto* const argument = reinterpret_cast<const bp_op_argument*>(
        reinterpret_cast<const std::byte*>(desc->arguments) + i * desc->argument_stride_bytes);
    const OpInfo::Argument entry{i, argument->offset_bytes,
                                 argument->kind == BP_ARGUMENT_TENSOR_LIST, argument->may_alias};
    switch (argument->kind) {
      case BP_ARGUMENT_TENSOR:
      case BP_ARGUMENT_OPTIONAL_TENSOR:
      case BP_ARGUMENT_TENSOR_LIST:
      case BP_ARGUMENT_OPERAND:
      case BP_ARGUMENT_SCALAR_TENSOR:
        info.inputs.push_back(entry);
        break;
      case BP_ARGUMENT_OUT:
      case BP_ARGUMENT_OPTIONAL_OUT:
        info.outputs.push_back(entry);
        break;
      default:
        break;
    }
  }
  return info;
}

}  // namespace

const OpInfo& op_info(uint32_t op) {
  static auto* const mutex = new std::mutex;
  static auto* const known = new std::map<uint32_t, OpInfo>;
  const std::lock_guard lock(*mutex);
  const auto found = known->find(op);
  if (found != known->end()) return found->second;
  return known->emplace(op, read(op)).first->second;
}

}  // namespace bpg

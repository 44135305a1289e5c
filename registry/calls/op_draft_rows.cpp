// Fills the rows of a described op: what the choice of a kernel and the checks of frames read.
#include <vector>

#include "registry/calls/op_draft.hpp"

namespace bp::core {
namespace {

class RowFiller {
 public:
  explicit RowFiller(OpDraft& draft) : draft_(draft) {}

  void fill_row() {
    RuntimeOp& op = made_;
    draft_.add_size(draft_.last_since, given_.frame_size_bytes);
    op.name = op.desc.name;
    op.numerics = op.desc.numerics == nullptr ? "" : op.desc.numerics;
    op.frame_size_bytes = given_.frame_size_bytes;
    op.revision = given_.revision;
    op.later_values = op.later;
    std::vector<uint8_t> tensor_of(op.described.size(), kNoArgument);
    for (uint32_t i = 0; i < op.described.size(); ++i) {
      const bp_op_argument& a = op.described[i];
      const Kind kind = static_cast<Kind>(a.kind - 1);
      const bool is_tensor = is_tensor_kind(a.kind);
      op.members.push_back({0, a.offset_bytes, kind, is_tensor, a.name});
      if (kind == Kind::i64_list) {
        if (op.integer_list_count == kMaxIntegerLists) {
          draft_.reject("it has more than " + std::to_string(kMaxIntegerLists) +
                        " lists of integers");
        }
        op.integer_lists[op.integer_list_count++] = static_cast<uint16_t>(a.offset_bytes);
      }
      if (!is_tensor) continue;
      if (op.tensor_count == kMaxRuntimeTensors) {
        draft_.reject("it has more than " + std::to_string(kMaxRuntimeTensors) + " tensors");
      }
      tensor_of[i] = static_cast<uint8_t>(op.tensor_count);
      fill_tensor(a, op.arguments[i], kind);
    }
    for (uint32_t i = 0; i < op.described.size(); ++i) {
      if (op.arguments[i].dtype_rule != DtypeRule::like) continue;
      op.tensors[tensor_of[i]].like = tensor_of[op.arguments[i].other];
    }
  }

  void fill_checks() {
    RuntimeOp& op = made_;
    uint32_t output_count = 0;
    for (const bp_op_argument& a : op.described) {
      std::string& values = op.texts.emplace_back();
      for (uint32_t i = 0; i < a.value_count; ++i) {
        values += (i == 0 ? "" : ", ") + std::string(a.value_names[i]);
      }
      const auto kind = static_cast<ops::Kind>(a.kind - 1);
      op.check_arguments.push_back({.name = a.name,
                                    .values = values.c_str(),
                                    .aliases = static_cast<uint32_t>(a.may_alias),
                                    .offset = static_cast<uint16_t>(a.offset_bytes),
                                    .first = static_cast<uint16_t>(a.first_value),
                                    .kind = kind});
      output_count += kind == ops::Kind::out || kind == ops::Kind::out_opt ? 1 : 0;
    }
    if (output_count > ops::kMaxOutputs) {
      draft_.reject("it has more than " + std::to_string(ops::kMaxOutputs) + " outputs");
    }
    op.check.name = op.name;
    op.check.arguments = op.check_arguments.data();
    op.check.infer = infer_runtime_op;
    op.check.frame_bytes = op.frame_size_bytes;
    op.check.first_bytes = op.first_size_bytes();
    op.check.argument_count = static_cast<uint32_t>(op.described.size());
    op.check.output_count = output_count;
    op.check.owner = &op;
    op.desc.argument_stride_bytes = sizeof(bp_op_argument);
  }

 private:
  void fill_tensor(const bp_op_argument& a, const RuntimeArgument& made, Kind kind) {
    RuntimeOp& op = made_;
    const uint32_t bit = 1u << op.tensor_count;
    TensorArgument& tensor = op.tensors[op.tensor_count++];
    tensor.name = a.name;
    tensor.offset = static_cast<uint16_t>(a.offset_bytes);
    tensor.kind = kind;
    tensor.is_free = made.dtype_rule == DtypeRule::free;
    tensor.may_be_absent = a.since > given_.since;
    if (made.dtype_rule == DtypeRule::fixed) tensor.dtype = made.dtypes[0];
    op.free_count += tensor.is_free ? 1 : 0;
    op.list_mask |= tensor.is_list() ? bit : 0;
    op.required_mask |= tensor.is_required() ? bit : 0;
    op.output_mask |= tensor.is_output() ? bit : 0;
  }

  OpDraft& draft_;
  const bp_op_desc& given_ = draft_.given;
  RuntimeOp& made_ = *draft_.made;
};

}  // namespace

void fill_rows(OpDraft& draft) {
  RowFiller filler(draft);
  filler.fill_row();
  filler.fill_checks();
}

}  // namespace bp::core

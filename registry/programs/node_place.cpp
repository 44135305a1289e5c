#include "registry/programs/node_place.hpp"

#include <algorithm>
#include <utility>

#include "registry/calls/call.hpp"
#include "registry/calls/frame_words.hpp"

namespace bp::core {

uint32_t ProgramValues::add_temporary(const bp_tensor& like) {
  const std::vector<int64_t>& shape = shapes_.emplace_back(like.shape, like.shape + like.ndim);
  bp_program_value value{};
  value.struct_size = sizeof(value);
  value.struct_type = BP_STRUCT_PROGRAM_VALUE;
  value.shape = shape.data();
  value.dtype = like.dtype;
  value.ndim = like.ndim;
  value.role = BP_VALUE_TEMPORARY;
  all.push_back(value);
  return static_cast<uint32_t>(all.size() - 1);
}

NodeFrame::NodeFrame(const OpRow& row, const void* args)
    : row_(row), words_((row.frame_size_bytes + 7) / 8) {
  std::memcpy(words_.data(), args, std::min(frame_size(args), row.frame_size_bytes));
  set(0, row.frame_size_bytes);
  for (uint32_t i = 0; i < row.tensor_count; ++i) {
    const TensorArgument& argument = row.tensors[i];
    if (!argument.is_list()) {
      set(argument.offset, own(tensor_at(words_.data(), argument)));
      continue;
    }
    const TensorList list = list_at(words_.data(), argument);
    std::vector<const bp_tensor*>& items = lists_.emplace_back();
    for (uint64_t k = 0; k < list.count; ++k) items.push_back(own(list.items[k]));
    set(argument.offset, static_cast<const bp_tensor* const*>(items.data()));
  }
  for (uint32_t i = 0; i < row.integer_list_count; ++i) {
    const uint16_t offset = row.integer_lists[i];
    const auto* const list = *static_cast<const int64_t* const*>(member(words_.data(), offset));
    const auto count = *static_cast<const uint64_t*>(member(words_.data(), offset - 8u));
    const std::vector<int64_t>& own = numbers_.emplace_back(list, list + count);
    set(offset, static_cast<const int64_t*>(own.data()));
  }
}

const bp_tensor* NodeFrame::own(const bp_tensor* theirs) {
  if (theirs == nullptr) return tensors_.emplace_back(nullptr);
  bp_tensor& ours = storage_.emplace_back(*theirs);
  ours.next = nullptr;
  ours.shape = numbers_.emplace_back(ours.shape, ours.shape + ours.ndim).data();
  ours.strides = numbers_.emplace_back(ours.strides, ours.strides + ours.ndim).data();
  return tensors_.emplace_back(&ours);
}

bool NodeFrame::bind(const bp_extent_binding& binding, int64_t number) {
  for (const FrameMember& found : frame_members(row_)) {
    if (found.is_tensor || found.offset != binding.member_offset) continue;
    switch (found.kind) {
      case Kind::i32:
        if (number > INT32_MAX || binding.element != 0) return false;
        set(found.offset, static_cast<int32_t>(number));
        return true;
      case Kind::i64:
      case Kind::u64:
        if (binding.element != 0) return false;
        set(found.offset, number);
        return true;
      case Kind::i64_list: {
        const auto count = *static_cast<const uint64_t*>(member(data(), found.offset - 8));
        if (binding.element >= count) return false;
        // The list is a copy that this frame owns.
        auto* const list = *static_cast<int64_t* const*>(member(data(), found.offset));
        list[binding.element] = number;
        return true;
      }
      default:
        return false;
    }
  }
  return false;
}

void NodePlace::place(bp_tensor& tensor) {
  tensor.buffer = ProgramValues::buffer_of(values_.add_temporary(tensor));
}

void NodePlace::launch(uint32_t op, const void* args) {
  MadeNode& node = nodes.emplace_back();
  node.frame = std::make_unique<NodeFrame>(*find_op(op), args);
  for (bp_tensor* const tensor : node.frame->tensors()) {
    node.values.push_back(tensor == nullptr ? BP_NO_VALUE
                                            : ProgramValues::value_of(tensor->buffer));
    if (tensor != nullptr) tensor->buffer = nullptr;
  }
}

}  // namespace bp::core

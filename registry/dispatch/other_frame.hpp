// Frames for calls that the host runs on tensors of another dtype, in the same memory or in copies.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <deque>
#include <vector>

#include "registry/calls/call.hpp"
#include "registry/calls/op_rows.hpp"

namespace bp::core {

// The argument whose dtype the call chooses first.
inline uint32_t root_of(const OpRow& row) {
  uint32_t i = 0;
  while (i < row.tensor_count && !row.tensors[i].is_free) ++i;
  return i;
}

// Returns whether an argument has the dtype of the root. The dtype of the result of a copy is free,
// and by_width_refusal() has compared it.
inline bool follows(const OpRow& row, uint32_t i, uint32_t root) {
  return i == root || row.tensors[i].like == root || row.op == BP_OP_COPY;
}

// A copy of a frame with other tensors. It is valid as long as this object.
class OtherFrame {
 public:
  // `replace(argument, tensor)` returns what takes the place of a tensor of the root's dtype.
  template <typename Replace>
  OtherFrame(const OpRow& row, const void* args, const Replace& replace) {
    std::memcpy(frame_.data(), args, row.frame_size_bytes);
    const uint32_t root = root_of(row);
    for (uint32_t i = 0; i < row.tensor_count; ++i) {
      const TensorArgument& argument = row.tensors[i];
      if (!follows(row, i, root)) continue;
      if (!argument.is_list()) {
        const bp_tensor* const given = tensor_at(args, argument);
        const bp_tensor* const other = given == nullptr ? nullptr : replace(argument, *given);
        // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer itself is written.
        std::memcpy(frame_.data() + argument.offset, &other, sizeof(other));
        continue;
      }
      const TensorList given = list_at(args, argument);
      std::vector<const bp_tensor*>& items = lists_.emplace_back();
      for (uint64_t k = 0; k < given.count; ++k) {
        items.push_back(replace(argument, *given.items[k]));
      }
      const bp_tensor* const* const data = items.data();
      // NOLINTNEXTLINE(bugprone-sizeof-expression): the pointer itself is written.
      std::memcpy(frame_.data() + argument.offset, &data, sizeof(data));
    }
  }
  OtherFrame(const OtherFrame&) = delete;

  const void* data() const { return frame_.data(); }

  template <typename T>
  void set(uint32_t offset, T value) {
    std::memcpy(frame_.data() + offset, &value, sizeof(value));
  }

 private:
  alignas(8) std::array<std::byte, kMaxFrameBytes> frame_;
  std::deque<std::vector<const bp_tensor*>> lists_;
};

inline bp_dtype root_dtype(const OpRow& row, const void* args) {
  const TensorArgument& root = row.tensors[root_of(row)];
  return root.is_list() ? list_at(args, root).items[0]->dtype : tensor_at(args, root)->dtype;
}

}  // namespace bp::core

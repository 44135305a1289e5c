// The host side of map.comp, which computes one op on every element of tensors of one shape.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

// A value in a tensor of one element, as a tensor of the shape of another one, which repeats it.
class Repeated {
 public:
  Repeated(const bp_tensor& value, const bp_tensor& like) : tensor_(value) {
    static constexpr int64_t kNoStrides[BP_MAX_RANK] = {};
    tensor_.ndim = like.ndim;
    tensor_.shape = like.shape;
    tensor_.strides = kNoStrides;
  }
  const bp_tensor* tensor() const { return &tensor_; }

 private:
  bp_tensor tensor_;
};

enum MapOp : uint32_t {
#define BP_MAP_OP(name, number) name = (number),
#define BP_MAP_LONG_OP(name, number) name = (number),
#include "backends/vulkan/kernels/map_ops.def"
#include "elementwise_ops.def"
#undef BP_MAP_LONG_OP
#undef BP_MAP_OP
};

// Submits `op`. `tensors` are the result and at most three operands. NULL stands for the value
// whose bits are `scalar`, in acc(x) for the operand x before it.
bp_status submit_map(Launch& launch, MapOp op, std::initializer_list<const bp_tensor*> tensors,
                     uint64_t scalar = 0);

// Submits an op that only moves elements of any dtype. The first operand of kMapWhere is bool. A
// `scalar` has the dtype of the result.
bp_status submit_move(Launch& launch, MapOp op, std::initializer_list<const bp_tensor*> tensors,
                      uint64_t scalar = 0);

}  // namespace bp::vulkan

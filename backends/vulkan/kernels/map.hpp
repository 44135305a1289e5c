// The host side of map.comp, which computes one op on every element of tensors of one shape.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "backends/vulkan/kernels/kernels.hpp"

namespace bp::vulkan {

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
// `scalar` has the dtype of the operand before it.
bp_status submit_move(Launch& launch, MapOp op, std::initializer_list<const bp_tensor*> tensors,
                      uint64_t scalar = 0);

}  // namespace bp::vulkan

// The id of each op under the spelling that the rows of ops.def use for it.
#pragma once

#include <cstdint>

namespace bp {

enum : uint32_t {
#define BP_OP(id, name, since, profile, core_or_decomposable, numerics) kOp_##name = (id),
#define BP_ARG(op, member, kind, dtype_rule)
#include "backplane/ops.def"
#undef BP_OP
#undef BP_ARG
};

}  // namespace bp

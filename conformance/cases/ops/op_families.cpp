#include "conformance/cases/ops/op_families.hpp"

namespace bp::conformance {
namespace {

constexpr OpFamily kFamilies[] = {
#define BP_OP_FAMILY(group, name) {group, add_##name},
#include "conformance/cases/ops/op_families.def"
#undef BP_OP_FAMILY
};

}  // namespace

std::span<const OpFamily> op_families() { return kFamilies; }

}  // namespace bp::conformance

// Turns statuses, dtypes and ops into names, and names of dtypes and ops back.
#include <iterator>
#include <string_view>

#include "backplane/host.h"
#include "registry/calls/op_rows.hpp"

namespace {

constexpr const char* kStatusNames[] = {
    "ok",       "invalid argument", "unsupported",   "out of memory", "device lost",
    "timeout",  "aborted",          "incompatible",  "not found",     "already exists",
    "internal", "data failure",     "stream failed",
};
static_assert(std::size(kStatusNames) == BP_STREAM_FAILED + 1);

struct Dtype {
  const char* name;
  uint32_t bits;
};

// The index of each row is the value of the dtype.
constexpr Dtype kDtypes[] = {
    {nullptr, 0},      {"bool", 8},       {"i4", 4},     {"u4", 4},       {"i8", 8},
    {"i16", 16},       {"i32", 32},       {"i64", 64},   {"u8", 8},       {"u16", 16},
    {"u32", 32},       {"u64", 64},       {"f16", 16},   {"bf16", 16},    {"f32", 32},
    {"f64", 64},       {"c64", 64},       {"c128", 128}, {"f8e4m3fn", 8}, {"f8e5m2", 8},
    {"f8e4m3fnuz", 8}, {"f8e5m2fnuz", 8}, {"f4e2m1", 4},
};
static_assert(std::size(kDtypes) == BP_F4E2M1 + 1);

}  // namespace

const char* bp_status_name(bp_status status) {
  if (status < 0) return "vendor status";
  return status <= BP_STREAM_FAILED ? kStatusNames[status] : "unknown status";
}

const char* bp_dtype_name(bp_dtype dtype) {
  return dtype < std::size(kDtypes) ? kDtypes[dtype].name : nullptr;
}

bp_dtype bp_dtype_from_name(const char* name) {
  for (bp_dtype dtype = 1; name != nullptr && dtype < std::size(kDtypes); ++dtype) {
    if (std::string_view(name) == kDtypes[dtype].name) return dtype;
  }
  return 0;
}

uint32_t bp_dtype_bits(bp_dtype dtype) {
  return dtype < std::size(kDtypes) ? kDtypes[dtype].bits : 0;
}

const char* bp_op_name(uint32_t op) {
  const bp::core::OpRow* row = bp::core::find_op(op);
  return row == nullptr ? nullptr : row->name;
}

uint32_t bp_op_from_name(const char* name) {
  for (const bp::core::OpRow& row : bp::core::op_rows()) {
    if (name != nullptr && std::string_view(name) == row.name) return row.op;
  }
  return 0;
}

#include "registry/calls/dtypes.hpp"

#include <cstring>
#include <iterator>
#include <mutex>
#include <string_view>

#include "backplane/host.h"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/guard.hpp"
#include "registry/boundary/plugin_text.hpp"

namespace bp::core {
namespace {

struct Dtype {
  const char* name;
  uint32_t bits;
};

// The index of each row is the value of the dtype.
constexpr Dtype kDtypes[] = {
    {nullptr, 0},      {"bool", 8},       {"i4", 4},     {"u4", 4},        {"i8", 8},
    {"i16", 16},       {"i32", 32},       {"i64", 64},   {"u8", 8},        {"u16", 16},
    {"u32", 32},       {"u64", 64},       {"f16", 16},   {"bf16", 16},     {"f32", 32},
    {"f64", 64},       {"c64", 64},       {"c128", 128}, {"f8e4m3fn", 8},  {"f8e5m2", 8},
    {"f8e4m3fnuz", 8}, {"f8e5m2fnuz", 8}, {"f4e2m1", 4}, {"f8e8m0fnu", 8}, {"f6e2m3", 6},
    {"f6e3m2", 6},     {"i2", 2},         {"u2", 2},
};
static_assert(std::size(kDtypes) == BP_U2 + 1);

constexpr uint32_t kMaxVendorDtypes = 1024;
static_assert(BP_DTYPE_VENDOR_FIRST + kMaxVendorDtypes - 1 <= BP_DTYPE_VENDOR_LAST);

// A row is written once, before the count includes it. Names are never freed: programs hold them,
// also while they end.
constinit Dtype vendor_dtypes[kMaxVendorDtypes] = {};
constinit std::mutex vendor_dtypes_mutex;  // Guards the adding of a row.

// Returns the row of `dtype`, which is empty for an unknown dtype.
const Dtype& row_of(bp_dtype dtype) {
  if (dtype < std::size(kDtypes)) return kDtypes[dtype];
  return is_known_dtype(dtype) ? vendor_dtypes[dtype - BP_DTYPE_VENDOR_FIRST] : kDtypes[0];
}

bp_dtype find_vendor_dtype(std::string_view name) {
  const uint32_t count = vendor_dtype_count.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    if (name == vendor_dtypes[i].name) return BP_DTYPE_VENDOR_FIRST + i;
  }
  return 0;
}

bool is_valid_size(uint32_t bits) {
  const bool is_packed = bits == 2 || bits == 4 || bits == 6;
  return is_packed || (bits != 0 && bits % 8 == 0 && bits <= 1024);
}

bp_status add_vendor_dtype(const std::string& name, uint32_t bits, bp_dtype* out_dtype) {
  const std::lock_guard lock(vendor_dtypes_mutex);
  if (const bp_dtype known = find_vendor_dtype(name); known != 0) {
    if (bp_dtype_bits(known) == bits) return *out_dtype = known, BP_OK;
    return fail(BP_ALREADY_EXISTS, "add_dtype: " + name + " has " +
                                       std::to_string(bp_dtype_bits(known)) + " bits, not " +
                                       std::to_string(bits));
  }
  const uint32_t count = vendor_dtype_count.load(std::memory_order_relaxed);
  if (count == kMaxVendorDtypes) {
    return fail(BP_UNSUPPORTED, "add_dtype: all " + std::to_string(kMaxVendorDtypes) +
                                    " dtypes of vendors are handed out");
  }
  auto* const own_name = new char[name.size() + 1];
  std::memcpy(own_name, name.c_str(), name.size() + 1);
  vendor_dtypes[count] = {own_name, bits};
  vendor_dtype_count.store(count + 1, std::memory_order_release);
  *out_dtype = BP_DTYPE_VENDOR_FIRST + count;
  return BP_OK;
}

}  // namespace

constinit std::atomic<uint32_t> vendor_dtype_count = 0;

std::string dtype_text(bp_dtype dtype) {
  const char* name = bp_dtype_name(dtype);
  return name == nullptr ? "dtype " + std::to_string(dtype) : name;
}

}  // namespace bp::core

const char* bp_dtype_name(bp_dtype dtype) { return bp::core::row_of(dtype).name; }

uint32_t bp_dtype_bits(bp_dtype dtype) { return bp::core::row_of(dtype).bits; }

bp_dtype bp_dtype_from_name(const char* name) {
  if (name == nullptr) return 0;
  for (bp_dtype dtype = 1; dtype < std::size(bp::core::kDtypes); ++dtype) {
    if (std::string_view(name) == bp::core::kDtypes[dtype].name) return dtype;
  }
  return bp::core::find_vendor_dtype(name);
}

bp_status bp_dtype_add(const char* name, uint32_t bits, bp_dtype* out_dtype) {
  using bp::fail;
  return bp::core::guarded([&] {
    if (name == nullptr || out_dtype == nullptr) {
      return fail(BP_INVALID_ARGUMENT, "add_dtype: name or out_dtype is NULL");
    }
    if (!bp::is_vendor_name(name)) {
      return fail(BP_INVALID_ARGUMENT, "add_dtype: the name is " + bp::clean_name(name) +
                                           ", not vendor.name with both in [a-z0-9_]+");
    }
    if (!bp::core::is_valid_size(bits)) {
      return fail(BP_INVALID_ARGUMENT,
                  "add_dtype: " + std::string(name) + " has " + std::to_string(bits) +
                      " bits; allowed are 2, 4, 6, and multiples of 8 up to 1024");
    }
    return bp::core::add_vendor_dtype(name, bits, out_dtype);
  });
}

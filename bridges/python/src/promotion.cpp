// It relies on base.h, where i8..i64, u8..u64 and f16..f64 stand in the order of their width.
#include "promotion.hpp"

#include <algorithm>

namespace bp::python {
namespace {

bool is_signed(bp_dtype d) { return d >= BP_I8 && d <= BP_I64; }
bool is_unsigned(bp_dtype d) { return d >= BP_U8 && d <= BP_U64; }
bool is_wide_float(bp_dtype d) { return d >= BP_F16 && d <= BP_F64; }

bp_dtype promote_floats(bp_dtype a, bp_dtype b) {
  if (!is_wide_float(a) && !is_wide_float(b)) return BP_F32;  // Two formats of 8 bits.
  if (!is_wide_float(a)) return b;
  if (!is_wide_float(b)) return a;
  if (std::min(a, b) == BP_F16 && std::max(a, b) == BP_BF16) return BP_F32;
  return std::max(a, b);
}

}  // namespace

bool is_float(bp_dtype d) { return is_wide_float(d) || (d >= BP_F8E4M3FN && d <= BP_F6E3M2); }

bp_dtype promote(bp_dtype a, bp_dtype b) {
  if (a == b || b == BP_BOOL) return a;
  if (a == BP_BOOL) return b;
  if (is_float(a) && is_float(b)) return promote_floats(a, b);
  if (is_float(a) && (is_signed(b) || is_unsigned(b))) return a;
  if (is_float(b) && (is_signed(a) || is_unsigned(a))) return b;
  if ((is_signed(a) && is_signed(b)) || (is_unsigned(a) && is_unsigned(b))) return std::max(a, b);
  const bp_dtype with_sign = is_signed(a) ? a : b;
  const bp_dtype without = is_signed(a) ? b : a;
  if (!is_signed(with_sign) || !is_unsigned(without) || without == BP_U64) return 0;
  // A signed dtype holds every narrower unsigned one.
  return std::max(with_sign, without - BP_U8 + BP_I16);
}

bp_dtype promote_scalar(bp_dtype tensor, const bp_scalar& scalar) {
  if (scalar.dtype == BP_F64) return is_float(tensor) ? tensor : bp_dtype{BP_F32};
  if (scalar.dtype == BP_BOOL || tensor != BP_BOOL) return tensor;
  return BP_I64;
}

}  // namespace bp::python

// Loads, stores and narrows floats of 64 bits.

// This sets SignedZeroInfNanPreserve for floats of 64 bits.
spirv_execution_mode(extensions = ["SPV_KHR_float_controls"], capabilities = [4466], 4461, 64);

double load_f64(uint64_t address) { return packDouble2x32(unpackUint2x32(Bytes8(address).value)); }
void store_f64(uint64_t address, double value) {
  Bytes8(address).value = packUint2x32(unpackDouble2x32(value));
}

// Returns an f32 that store_f32() of `type` rounds to the same result as `value`.
float narrow_f64(uint type, double value) {
  float result = float(value);
  if (type == BP_F32 || is_nan(result)) return result;
  const float size = abs(result);
  result = to_odd(size, double(size) > abs(value), double(result) == value);
  if (value < 0.0lf || (value == 0.0lf && 1.0lf / value < 0.0lf)) result = -result;
  return result;
}

// The keys by which elements are compared. They are compiled for each class of dtypes; kType is the
// dtype of the elements.
const uint64_t kSign = 0x8000000000000000ul;

// Returns an unsigned number in the order of the elements. -0 is equal to 0, and every NaN is the
// largest.
uint64_t key_of(uint64_t address) {
#if defined(COMPUTE_F32)
  const float value = load_f32(kType, address);
  if (is_nan(value)) return ~0ul;
  uint bits = floatBitsToUint(value);
  if ((bits & 0x7fffffffu) == 0u) bits = 0u;
  return uint64_t((bits & 0x80000000u) != 0u ? ~bits : bits | 0x80000000u);
#elif defined(COMPUTE_F64)
  uint64_t bits = Bytes8(address).value;
  if ((bits & ~kSign) > 0x7ff0000000000000ul) return ~0ul;
  if ((bits & ~kSign) == 0ul) bits = 0ul;
  return (bits & kSign) != 0ul ? ~bits : bits | kSign;
#else
  return uint64_t(load_i64(kType, address)) ^ kSign;
#endif
}

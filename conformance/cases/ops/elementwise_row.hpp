// A row of the list that emit_elementwise.py writes. The cases of an element-wise op follow from
// it.
#pragma once

#include <cstdint>

namespace bp::conformance::elementwise {

constexpr uint32_t kMostInputs = 3;

// kNumbers has i32 and i64 too, kSmall also u8, i8 and i16, and kOrdered bool. Conditions take
// kAny. kIntegers has the integers of kSmall alone, and kBits those and bool.
enum class Dtypes { kFloats, kNumbers, kSmall, kOrdered, kAny, kIntegers, kBits };

struct Row {
  uint32_t op;
  const char* inputs[kMostInputs];  // The inputs in the order of the frame.
  uint32_t input_count;
  const char* output;
  const char* operand;  // The input that may be an inline scalar; "" if none.
  Dtypes dtypes;
  const char* primitive;  // The one that rounds, if the class is of one primitive; else "".
  bool is_either;         // Of zeros of both signs the result may be either.
  bool may_alias;         // The output may lie in an input.
  const char* samples;
  bool uses_library;  // The oracle in two doubles has functions of long double.
};

}  // namespace bp::conformance::elementwise

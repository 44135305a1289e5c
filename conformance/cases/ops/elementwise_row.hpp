// What the cases of an element-wise op follow from: a row of the list that emit_elementwise.py
// writes.
#pragma once

#include <cstdint>

namespace bp::conformance::elementwise {

constexpr uint32_t kMostInputs = 3;

enum class Dtypes { kFloats, kNumbers, kAny };

// Where the bound comes from.
enum class BoundRule {
  kExact,      // Nothing but the last rounding: E0 and E1.
  kPrimitive,  // One primitive of exact arguments: E1d and E2.
  kComposite,  // Propagated through the formula: E2c, a function that may lose subnormals,
  kGradient,   // and P, whose formula may also give NaN where an argument is infinite.
};

enum class Zero { kFree, kChecked, kOpenAtZeros };  // Open: where an input is zero too.

struct Row {
  uint32_t op;
  const char* family;               // The file of the spec.
  const char* inputs[kMostInputs];  // In the order of the frame.
  uint32_t input_count;
  const char* output;
  const char* operand;  // The input that may be an inline scalar; "" if none.
  Dtypes dtypes;
  BoundRule bound;
  const char* primitive;  // Of kPrimitive.
  Zero zero;
  bool may_alias;    // The output may lie in an input.
  bool checks_bias;  // Class E1.
  const char* samples;
};

}  // namespace bp::conformance::elementwise

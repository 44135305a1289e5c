// How the error class that the spec gives an op makes the suite judge results of the op.
// docs/error_classes.md explains the classes.
#pragma once

#include <cstdint>

namespace bp::conformance {

// Where B comes from, the error that is allowed before the last rounding.
enum class BoundRule {
  kExact,       // B is 0.
  kChosen,      // B is 0 too. Where a kernel declares it, any of several equal elements is right.
  kPrimitive,   // One primitive of exact arguments.
  kFunction,    // A function of several steps, which may lose subnormals.
  kPropagated,  // The errors of the steps are carried to the result.
  kSum,         // A sum of terms.
  kProduct,     // A product of factors.
  kSoftmax,
  kLogSoftmax,
  kNorm,
  kAttention,
};

struct Judgement {
  uint32_t op = 0;
  BoundRule bound = BoundRule::kExact;
  bool checks_zero = false;  // -0 and 0 are different results.
  bool checks_bias = false;  // Right results err to both sides alike.
};

// The judgement of an op of the spec. Throws std::out_of_range for any other.
const Judgement& judgement_of(uint32_t op);

}  // namespace bp::conformance

// How oracles become what a case expects: the class that the spec gives an op selects it.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "conformance/cases/engine/op_case.hpp"
#include "conformance/numerics/judgement.hpp"

namespace bp::conformance {

// A number for each element of each output.
using Bounds = std::vector<std::vector<double>>;

// Sums of terms: B, and S, the sum of the absolute values of the terms. Or products of factors: B,
// and what the errors of right products of this many factors are compared with.
struct Sums {
  Bounds bounds;
  Bounds magnitudes;
};

// What an oracle knows of the outputs of one call. The class of the op selects what of it counts. A
// function that is absent is of a class that the op cannot have.
struct Known {
  std::vector<Expected> outputs;  // Values and what is open in them, without bounds.
  std::function<Sums()> sums;
  std::function<Bounds()> propagated;
  std::function<Bounds(BoundRule)> formula;  // By a rule for which there is a formula; else empty.
  Bounds carried;  // What rounding the call's own numbers brings, whatever the class; may be empty.
  bool is_one_sided = false;  // Right results may err to one side all the same.

  // Whether an element is the index of one of several equal extremes, for the last output; NULL:
  // the kernel declares that it gives the first.
  std::function<bool(int64_t element, DoubleDouble y)> is_tied;
};

// What the outputs must be by the class of the op. Throws std::logic_error if the oracle knows
// nothing by which this class judges.
std::vector<Expected> judged(const CallData& data, Known known);
std::vector<Expected> judged_by(const Judgement& judgement, const CallData& data, Known known);

// `run` takes a number and gives the arrays of the outputs in its type; its run on Bounded gives
// the propagated bounds. It must live until the result is judged.
template <typename Run>
Known steps(bp_dtype dtype, const Run& run) {
  Known known;
  with_float(dtype, [&](auto number) {
    for (const auto& y : run(number)) known.outputs.push_back(exactly(y));
  });
  known.propagated = [dtype, &run] {
    return with_bounded(dtype, [&](auto number) {
      Bounds bounds;
      for (const auto& y : run(number)) {
        std::vector<double>& own = bounds.emplace_back();
        for (const auto& element : y.data) own.push_back(element.error);
      }
      return bounds;
    });
  };
  return known;
}
template <typename Run>
std::vector<Expected> judged_steps(const CallData& data, bp_dtype dtype, const Run& run) {
  return judged(data, steps(dtype, run));
}

// One output that is a sum of `count` terms, whose absolute values add up to `magnitudes`. The
// magnitudes and `numerics` must live until the result is judged.
template <typename N>
Known summed(const Array<N>& values, const Array<N>& magnitudes, double count,
             const Numerics& numerics) {
  Known known{{exactly(values)}};
  known.sums = [&magnitudes, count, &numerics] {
    Sums sums{Bounds(1), Bounds(1)};
    for (const N& magnitude : magnitudes.data) {
      const double s = exact_of(magnitude).hi;
      sums.magnitudes[0].push_back(s);
      sums.bounds[0].push_back(sum_bound(s, count, numerics));
    }
    return sums;
  };
  return known;
}
template <typename N>
std::vector<Expected> judged_sum(const CallData& data, const Array<N>& values,
                                 const Array<N>& magnitudes, double count,
                                 const Numerics& numerics) {
  return judged(data, summed(values, magnitudes, count, numerics));
}

// Outputs that need no bound, such as elements that are moved.
inline std::vector<Expected> judged_values(const CallData& data, std::vector<Expected> outputs) {
  return judged(data, Known{std::move(outputs)});
}

// If an argument is infinite, a formula may give NaN in place of its limit.
inline void allow_nan_at_infinity(Expected& expected, const HostTensor& argument) {
  expected.also_right = [data = argument.data](int64_t element, DoubleDouble y) {
    return isnan(y) && std::isinf(data[static_cast<size_t>(element)].hi);
  };
}

// Returns the row with tensors of one element in place of its inline scalars, as a replayed graph
// has them.
inline OpCase with_scalars_as_tensors(OpCase row, bp_dtype rate = BP_F64) {
  row.detail += rate == BP_F64 ? "_tensors" : std::string("_tensors_") + dtype_text(rate);
  for (const Attribute& attribute : row.attributes) {
    const auto* scalar = std::get_if<bp_scalar>(&attribute.value);
    if (scalar == nullptr) continue;
    const double value = scalar_value(*scalar).hi;
    const bp_dtype dtype = scalar->dtype == BP_F64 ? rate : scalar->dtype;
    row.input(attribute.name, dtype, {}, {FillKind::kUniform, value, value});
  }
  std::erase_if(row.attributes, [](const Attribute& attribute) {
    return std::holds_alternative<bp_scalar>(attribute.value);
  });
  return row;
}

// ---- Indices out of range -------------------------------------------------------------------- //

// The values of `bounds` that do not fail. They are the same in each op that has it.
enum class OutOfRange : int64_t { kClamp = 1, kUndefined = 2 };

// Puts indices that are out of range into every other place of a tensor of them. A plane of indices
// may have a value that names nothing, such as ignore_index; no wrong index equals it.
void spoil_indices(HostTensor& indices, int64_t extent, int64_t exception);

// Returns the indices that act by the attribute `bounds` of the call. Without it, they are as
// given.
Array<int64_t> acting_indices(const CallData& data, std::string_view name, int64_t extent,
                              std::optional<int64_t> exception = {});

// Returns the row with indices `name` out of range, which the rule allows: the call does not fail.
// Results by kUndefined may be anything; memory outside of the tensors does not change.
OpCase with_bounds(OpCase row, OutOfRange rule, std::string_view name, int64_t extent,
                   int64_t exception = INT64_MIN);

// ---- Dtypes that kernels may leave to the host ------------------------------------------------
// //

// Returns the optional part of a call that computes in a bool or in an integer of 8 or 16 bits,
// which the host can run in i32; "" for another dtype.
inline std::string small_part(bp_dtype dtype) {
  const bool is_small = dtype == BP_BOOL || dtype == BP_U8 || dtype == BP_I8 || dtype == BP_I16;
  return is_small ? "small integers" : "";
}

// Dtypes whose elements share bytes. The host moves rows of them that are whole bytes.
constexpr bp_dtype kPackedDtypes[] = {BP_I4, BP_U4, BP_I2, BP_U2, BP_F6E2M3, BP_F6E3M2, BP_F4E2M1};

// Returns the optional part of a call that moves elements which the host can move as integers of
// their width, or as whole bytes; "" for a dtype that each backend has kernels for.
inline std::string moved_part(bp_dtype dtype) {
  const bool is_rare = dtype == BP_U64 || is_coded(dtype);
  return is_rare ? dtype_text(dtype) : "";
}

// Dtypes whose elements each backend moves.
constexpr bp_dtype kMovedDtypes[] = {BP_F32, BP_F64,  BP_I64, BP_F16, BP_BF16,
                                     BP_I32, BP_BOOL, BP_U8,  BP_I8,  BP_I16};
// Dtypes that the host can move as integers of their width.
constexpr bp_dtype kRareMovedDtypes[] = {BP_U64, BP_F8E4M3FN, BP_F8E5M2, BP_F8E8M0FNU};

// Rows of f32 and f64 are smoke rows, and those of i64 too where elements are moved.
inline bool is_smoke_dtype(bp_dtype dtype) { return dtype == BP_F32 || dtype == BP_F64; }
inline bool is_moved_smoke_dtype(bp_dtype dtype) {
  return is_smoke_dtype(dtype) || dtype == BP_I64;
}

constexpr bp_dtype kFloats[] = {BP_F32, BP_F64, BP_F16, BP_BF16};

}  // namespace bp::conformance

// Conversions between dtypes.
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

bool is_narrow_float(bp_dtype dtype) { return dtype == BP_F8E4M3FN || dtype == BP_F8E5M2; }

// Saturates in a narrow float, which is what the op quantize does with a scale of 1.
Tensor narrowed(const Call& call, const Tensor& x, bp_dtype dtype) {
  if (!call.flag("saturate", true)) {
    call.unsupported("saturate is 0, but only casts that saturate are there");
  }
  const std::vector<int64_t> one_each(static_cast<size_t>(x.ndim()), 1);
  const Tensor source = x.dtype() == BP_F16 || x.dtype() == BP_BF16 ? x : x.to(BP_F32);
  return quantize(source, ones(one_each, BP_F32, x.device()), dtype);
}

Value cast_to(const Call& call, bp_dtype dtype) {
  if (call.value(0).dtype() == dtype) return call.value(0);
  const Tensor x = call.input(0);
  if (is_narrow_float(dtype)) return narrowed(call, x, dtype);
  return converted(x, dtype);
}

Values cast(const Call& call) {
  if (!call.has("to")) call.refuse("attribute 'to' is not given");
  return {cast_to(call, call.dtype("to", 0))};
}

Values cast_like(const Call& call) { return {cast_to(call, call.value(1).dtype())}; }

// round_mode is about f8e8m0, for which there is no dtype.
constexpr OpRow kRows[] = {
    {"Cast", 6, cast, "to saturate", OnnxRoute::kOp},
    {"Cast", 24, cast, "to saturate round_mode", OnnxRoute::kOp},
    {"CastLike", 15, cast_like, "saturate", OnnxRoute::kOp},
    {"CastLike", 24, cast_like, "saturate round_mode", OnnxRoute::kOp},
};

}  // namespace

std::span<const OpRow> cast_ops() { return kRows; }

}  // namespace bp::onnx

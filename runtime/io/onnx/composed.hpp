// Functions of tensors that the runtime has no op for, composed of its ops and views.
#pragma once

#include <utility>
#include <vector>

#include "backplane/runtime/ops.hpp"
#include "runtime/io/onnx/call.hpp"

namespace bp::onnx {

bool is_plain_float(bp_dtype dtype);    // f16, bf16, f32 or f64.
bool is_wide_unsigned(bp_dtype dtype);  // u16, u32 or u64: kernels move them, and compute nothing.

// Return the two inputs of an operator that broadcasts. Before opset 7 the attribute `axis` said
// where the axes of the second input lie.
std::pair<Tensor, Tensor> operands(const Call& call);

// Returns x.to(dtype). No kernel converts wide unsigned integers, so the host does it.
Tensor converted(const Tensor& x, bp_dtype dtype);

// Returns `x` in a dtype in which kernels compute: i64 for wide unsigned integers, which wraps from
// 2^63 on.
Tensor computable(const Tensor& x);

// Returns computable(x). Throws Error if an element is 2^63 or more.
Tensor checked_computable(const Call& call, const Tensor& x);

// Returns integers of 64 bits in the order of `x` if that is a wide unsigned integer, else `x`.
// unordered() returns to `dtype`.
Tensor ordered(const Tensor& x);
Tensor unordered(const Tensor& x, bp_dtype dtype);

// Returns 0, 1, ... as i64.
Tensor count_up(int64_t count, Device device);

// Returns one element of the dtype and the device of `like`.
Tensor scalar_like(double value, const Tensor& like);

// Returns small numbers of the host as a tensor.
Tensor ints_on(Device device, const std::vector<int64_t>& numbers, IntList shape);
Tensor floats_on(Device device, const std::vector<double>& numbers, IntList shape, bp_dtype dtype);

// Returns elements start, start + step, ... of `axis`; `step` may be negative.
Tensor take_steps(const Tensor& x, int64_t axis, int64_t start, int64_t step, int64_t count);

// Return the smallest and the largest elements, and the products, over `axes`. The dtype stays.
Tensor amin_of(const Tensor& x, IntList axes, bool keepdims);
Tensor amax_of(const Tensor& x, IntList axes, bool keepdims);
Tensor product(const Tensor& x, const std::vector<int64_t>& axes, bool keepdims);

Tensor concat(const std::vector<Tensor>& parts, int64_t axis);

// Puts `before` and `after` elements of `value` around `axis`.
Tensor pad_axis(const Tensor& x, int64_t axis, int64_t before, int64_t after, const Tensor& value);

// Returns `x` with `ndim` axes: its own begin at axis `first`, and all others have the extent 1. So
// a vector of channels meets (N, C, spatial).
Tensor align_axis(const Tensor& x, int64_t first, int64_t ndim);

// Returns 1 where the index along the new last axis is that of `indices`, else 0, as bool.
Tensor one_hot(const Tensor& indices, int64_t depth, int64_t axis);

// Returns the matrix product of tensors of any rank from 1 on, as numpy.matmul does it.
Tensor matmul_nd(Tensor a, Tensor b);

// Returns `y` where the condition holds, and 0 elsewhere, also where `y` is infinite.
Tensor keep_where(const Tensor& condition, const Tensor& y);

// Returns negative indices counted from the end of an axis.
Tensor wrap_indices(const Tensor& indices, int64_t extent);

// The most elements that the host computes places or values for, one by one. check_host_count()
// throws if `count` is more or negative; `what` says what is counted.
inline constexpr int64_t kMostOnHost = int64_t{1} << 28;
int64_t check_host_count(const Call& call, int64_t count, const char* what);

std::vector<int64_t> all_axes(int64_t ndim, int64_t first = 0);

}  // namespace bp::onnx

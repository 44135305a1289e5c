#include "runtime/io/onnx/composed.hpp"

#include <algorithm>
#include <numeric>

namespace bp::onnx {
namespace {

constexpr int64_t kSignBit = INT64_MIN;

// Moves the axes of `b` to those of `a` from `axis` on.
Tensor move_to_axis(const Call& call, const Tensor& a, const Tensor& b, int64_t axis) {
  const int64_t first = call.axis(axis, std::max<int64_t>(a.ndim(), 1));
  if (first + b.ndim() > a.ndim()) {
    call.refuse("the axes of " + bp::to_string(b.shape()) + " do not fit into " +
                bp::to_string(a.shape()) + " from axis " + std::to_string(first) + " on");
  }
  std::vector<int64_t> shape = b.shape().to_vector();
  shape.resize(static_cast<size_t>(a.ndim() - first), 1);
  return b.reshape(shape);
}

}  // namespace

bool is_plain_float(bp_dtype dtype) { return dtype >= BP_F16 && dtype <= BP_F64; }

bool is_wide_unsigned(bp_dtype dtype) {
  return dtype == BP_U16 || dtype == BP_U32 || dtype == BP_U64;
}

std::pair<Tensor, Tensor> operands(const Call& call) {
  const Tensor a = call.input(0);
  const Tensor b = call.input(1);
  if (call.opset() < 7 && call.has("axis") && call.flag("broadcast", false)) {
    return {a, move_to_axis(call, a, b, call.integer("axis", 0))};
  }
  return {a, b};
}

Tensor converted(const Tensor& x, bp_dtype dtype) {
  const bool is_wide = is_wide_unsigned(dtype), was_wide = is_wide_unsigned(x.dtype());
  if (x.dtype() == dtype || (!is_wide && !was_wide)) return x.to(dtype);
  if (was_wide && is_plain_float(dtype)) {
    return floats_on(x.device(), to_host(x).to_doubles("the input"), x.shape(), dtype);
  }
  const HostTensor host = to_host(was_wide ? x : x.to(BP_I64));
  const std::vector<int64_t> numbers = host.to_ints("the input");
  if (!is_wide) return ints_on(x.device(), numbers, x.shape()).to(dtype);
  return to_device(host_integers(numbers, host.shape, dtype), x.device());
}

Tensor computable(const Tensor& x) {
  return is_wide_unsigned(x.dtype()) ? converted(x, BP_I64) : x;
}

Tensor checked_computable(const Call& call, const Tensor& x) {
  Tensor y = computable(x);
  if (x.dtype() == BP_U64 && x.numel() > 0 && amin(y, kAllAxes, false).item<int64_t>() < 0) {
    call.unsupported(
        "an element of a u64 is 2^63 or more, which this operator cannot compute with");
  }
  return y;
}

Tensor ordered(const Tensor& x) {
  return x.dtype() == BP_U64 ? bitwise_xor(converted(x, BP_I64), kSignBit) : computable(x);
}

Tensor unordered(const Tensor& x, bp_dtype dtype) {
  return converted(dtype == BP_U64 ? bitwise_xor(x, kSignBit) : x, dtype);
}

Tensor count_up(int64_t count, Device device) { return bp::arange(count, BP_I64, device); }

Tensor scalar_like(double value, const Tensor& like) {
  if (is_plain_float(like.dtype())) return bp::scalar(value, like.dtype(), like.device());
  return bp::scalar(static_cast<int64_t>(value), like.dtype(), like.device());
}

Tensor ints_on(Device device, const std::vector<int64_t>& numbers, IntList shape) {
  return from_host(numbers, shape, device);
}

Tensor floats_on(Device device, const std::vector<double>& numbers, IntList shape, bp_dtype dtype) {
  if (dtype == BP_F64) return from_host(numbers, shape, device);
  const std::vector<float> narrow(numbers.begin(), numbers.end());
  return from_host(narrow, shape, device).to(dtype);
}

Tensor take_steps(const Tensor& x, int64_t axis, int64_t start, int64_t step, int64_t count) {
  if (count == 0) return x.narrow(axis, 0, 0);
  if (count == 1) return x.narrow(axis, start, 1);
  if (step > 0) return x.slice(axis, start, start + (count - 1) * step + 1, step);
  return index_select(x, bp::arange({count}, BP_I64, x.device(), start, step), axis);
}

Tensor amax_of(const Tensor& x, IntList axes, bool keepdims) {
  return unordered(amax(ordered(x), axes, keepdims), x.dtype());
}

Tensor amin_of(const Tensor& x, IntList axes, bool keepdims) {
  return unordered(amin(ordered(x), axes, keepdims), x.dtype());
}

Tensor product(const Tensor& x, const std::vector<int64_t>& axes, bool keepdims) {
  return converted(prod(computable(x), axes, keepdims), x.dtype());
}

Tensor concat(const std::vector<Tensor>& parts, int64_t axis) {
  return parts.size() == 1 ? parts[0] : cat(parts, axis);
}

Tensor pad_axis(const Tensor& x, int64_t axis, int64_t before, int64_t after, const Tensor& value) {
  std::vector<Tensor> parts;
  std::vector<int64_t> shape = x.shape().to_vector();
  const auto add_part = [&](int64_t count) {
    shape[static_cast<size_t>(axis)] = count;
    if (count > 0) parts.push_back(value.to(x.dtype()).expand(shape));
  };
  add_part(before);
  parts.push_back(x);
  add_part(after);
  return concat(parts, axis);
}

Tensor align_axis(const Tensor& x, int64_t first, int64_t ndim) {
  std::vector<int64_t> shape(static_cast<size_t>(ndim), 1);
  std::ranges::copy(x.shape(), shape.begin() + first);
  return x.reshape(shape);
}

Tensor one_hot(const Tensor& indices, int64_t depth, int64_t axis) {
  const Tensor places = align_axis(count_up(depth, indices.device()), axis, indices.ndim() + 1);
  return eq(indices.to(BP_I64).unsqueeze(axis), places);
}

Tensor matmul_nd(Tensor a, Tensor b) {
  const bool is_row = a.ndim() == 1;
  const bool is_column = b.ndim() == 1;
  if (is_row) a = a.unsqueeze(0);
  if (is_column) b = b.unsqueeze(1);
  const auto batch_of = [](const Tensor& x) {
    return std::vector<int64_t>(x.shape().begin(), x.shape().end() - 2);
  };
  std::vector<int64_t> batch = batch_of(a), other = batch_of(b);
  if (batch.size() < other.size()) batch.swap(other);
  for (size_t i = 1; i <= other.size(); ++i) {
    int64_t& extent = batch[batch.size() - i];
    if (extent == 1) extent = other[other.size() - i];
  }
  const auto expanded = [&](const Tensor& x) {
    std::vector<int64_t> shape = batch;
    shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
    return x.expand(shape);
  };
  Tensor y = matmul(expanded(a), expanded(b));
  if (is_row) y = y.squeeze(-2);
  return is_column ? y.squeeze(-1) : y;
}

Tensor keep_where(const Tensor& condition, const Tensor& y) {
  return where(condition, y, scalar_like(0, y));
}

Tensor wrap_indices(const Tensor& indices, int64_t extent) {
  const Tensor wide = indices.to(BP_I64);
  return where(lt(wide, 0), add(wide, extent), wide);
}

int64_t check_host_count(const Call& call, int64_t count, const char* what) {
  if (count >= 0 && count <= kMostOnHost) return count;
  call.refuse(std::string(what) + " is " + std::to_string(count) + "; allowed: 0 to " +
              std::to_string(kMostOnHost));
}

std::vector<int64_t> all_axes(int64_t ndim, int64_t first) {
  std::vector<int64_t> axes(static_cast<size_t>(std::max<int64_t>(ndim - first, 0)));
  std::iota(axes.begin(), axes.end(), first);
  return axes;
}

}  // namespace bp::onnx

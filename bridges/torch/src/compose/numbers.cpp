// Elementwise operators that are several ops, and the making of numbers.
#include <ATen/native/TypeProperties.h>

#include <cmath>

#include "compose.h"

namespace bpt {
namespace {

Tensor& fill_all(Tensor& self, const Scalar& value) {
  if (self.numel() == 0) return self;
  Tensor once = self;  // Without the axes along which an element repeats.
  for (int64_t axis = 0; axis < self.dim(); ++axis) {
    if (self.stride(axis) == 0) once = once.narrow(axis, 0, 1);
  }
  Call("fill").scalar("value", fitted(value, self.scalar_type())).out("y", once).go();
  return self;
}

Tensor& fill_tensor_(Tensor& self, const Tensor& value) {
  TORCH_CHECK(value.dim() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
              value.dim(), " dimensions.");
  copy_into(value.expand_as(self), self);
  return self;
}

Tensor& fill_zero(Tensor& self) { return fill_all(self, 0); }

Tensor& arange_out(const Scalar& start, const Scalar& end, const Scalar& step, Tensor& out) {
  const at::ScalarType type = out.scalar_type();
  require(step.toDouble() != 0 && std::isfinite(start.toDouble()) && std::isfinite(end.toDouble()),
          "the bounds of arange are not valid");
  const bool is_integer = at::isIntegralType(type, false) && start.isIntegral(false) &&
                          end.isIntegral(false) && step.isIntegral(false);
  int64_t count = 0;
  if (is_integer) {
    const int64_t way = step.toLong();
    count = (end.toLong() - start.toLong() + way - (way > 0 ? 1 : -1)) / way;
  } else {
    count = static_cast<int64_t>(std::ceil((end.toDouble() - start.toDouble()) / step.toDouble()));
  }
  require(count >= 0, "the bounds of arange do not match the sign of its step");
  if (out.numel() != count) out.resize_({count});
  if (count == 0) return out;
  Tensor dense = out.is_contiguous() ? out : new_empty({count}, type, out.device());
  Call call("arange");
  call.scalar("start", fitted(start, type)).scalar("step", fitted(step, type)).out("y", dense).go();
  if (!dense.is_same(out)) copy_into(dense.view_as(out), out);
  return out;
}

Tensor& linspace_out(const Scalar& start, const Scalar& end, int64_t steps, Tensor& out) {
  require(
      steps >= 0 && at::isFloatingType(out.scalar_type()) && !start.isComplex() && !end.isComplex(),
      "linspace is computed for floats alone");
  if (out.numel() != steps) out.resize_({steps});
  if (steps == 0) return out;
  if (steps == 1) return fill_all(out, start);
  // Both halves count from their own end, as PyTorch does, so that both ends are exact.
  const double first = start.toDouble(), last = end.toDouble();
  const double step = (last - first) / static_cast<double>(steps - 1);
  const Tensor index = at::arange(steps, out.options().dtype(at::kDouble));
  const Tensor low = at::add(at::mul(index, step), first);
  const Tensor high = at::add(at::mul(at::sub(index, Scalar(steps - 1)), step), last);
  copy_into(at::where(at::lt(index, Scalar(steps / 2)), low, high).view_as(out), out);
  return out;
}

// The memory format that all tensors have.
at::MemoryFormat format_of_cat(at::ArrayRef<std::reference_wrapper<const Tensor>> tensors) {
  const at::MemoryFormat first = tensors[0].get().suggest_memory_format();
  for (const Tensor& tensor : tensors) {
    if (tensor.suggest_memory_format() != first) return at::MemoryFormat::Contiguous;
  }
  return first;
}

Tensor cat(const at::ITensorListRef& tensors, int64_t dim) {
  const auto list = tensors.materialize();
  at::native::ResultTypeState types = {};
  for (const Tensor& tensor : list) types = at::native::update_result_type_state(tensor, types);
  const at::ScalarType common = at::native::result_type(types);
  std::vector<Tensor> parts;
  for (const Tensor& tensor : list) {
    const bool is_skipped = tensor.dim() == 1 && tensor.numel() == 0;
    if (!is_skipped) parts.push_back(tensor.to(common));
  }
  require(!parts.empty() && parts[0].dim() != 0, "all tensors of cat are empty or have no axis");
  const int64_t axis = at::maybe_wrap_dim(dim, parts[0].dim());
  Call call("cat");
  call.list("xs", parts).set("axis", axis);
  const at::MemoryFormat format = format_of_cat(list);
  if (format == at::MemoryFormat::Contiguous) return call.run_one();
  const bp_op_output& inferred = call.infer();
  const at::IntArrayRef shape(inferred.shape, inferred.ndim);
  const Tensor result = at::empty(shape, parts[0].options(), format);
  call.out("y", result).go();
  return result;
}

Tensor div_mode(const Tensor& self, const Tensor& other, std::optional<std::string_view> mode) {
  if (!mode) return at::div(self, other);
  if (*mode == "floor") return at::floor_divide(self, other);
  require(*mode == "trunc", "the rounding mode is not known");
  const at::ScalarType type = at::result_type(self, other);
  if (at::isFloatingType(type)) return at::trunc(at::div(self, other));
  // Integers: the quotient without the remainder that fmod leaves is exact.
  return at::floor_divide(at::sub(self, at::fmod(self, other)), other);
}

Tensor softplus(const Tensor& self, const Scalar& beta, const Scalar& threshold) {
  require(is_float(self) && beta.toDouble() > 0, "softplus has floats and a beta above 0");
  const Tensor scaled = at::mul(self, beta);
  const Tensor soft = at::div(Call("softplus").in("x", scaled).run_one(), beta);
  return at::where(at::gt(scaled, threshold), self, soft);
}

Tensor softplus_backward(const Tensor& grad, const Tensor& self, const Scalar& beta,
                         const Scalar& threshold) {
  const Tensor scaled = at::mul(self, beta);
  return at::where(at::gt(scaled, threshold), grad, at::mul(grad, at::sigmoid(scaled)));
}

Tensor elu(const Tensor& self, const Scalar& alpha, const Scalar& scale, const Scalar& input) {
  require(is_float(self), "elu is computed for floats alone");
  if (input.equal(1)) {
    const Tensor plain = Call("elu").in("x", self).scalar("alpha", alpha).run_one(self);
    return scale.equal(1) ? plain : at::mul(plain, scale);
  }
  const Tensor below =
      at::mul(at::expm1(at::mul(self, input)), alpha.toDouble() * scale.toDouble());
  return at::where(at::gt(self, 0), scale.equal(1) ? self : at::mul(self, scale), below);
}

Tensor elu_backward(const Tensor& grad, const Scalar& alpha, const Scalar& scale,
                    const Scalar& input, bool is_result, const Tensor& self) {
  const double slope = alpha.toDouble() * scale.toDouble();
  const Tensor below = is_result ? at::mul(at::add(self, slope), input)
                                 : at::mul(at::exp(at::mul(self, input)), slope * input.toDouble());
  const Tensor above = scale.equal(1) ? grad : at::mul(grad, scale);
  return at::where(at::gt(self, 0), above, at::mul(grad, below));
}

Tensor celu(const Tensor& self, const Scalar& alpha) {
  require(is_float(self), "celu is computed for floats alone");
  return Call("celu").in("x", self).scalar("alpha", alpha).run_one(self);
}

std::tuple<Tensor, Tensor> log_sigmoid_forward(const Tensor& self) {
  return {Call("log_sigmoid").in("x", self).run_one(self), at::empty({0}, self.options())};
}

Tensor log_sigmoid_backward(const Tensor& grad, const Tensor& self, const Tensor&) {
  return at::mul(grad, at::sigmoid(at::neg(self)));
}

Tensor hardtanh_backward(const Tensor& grad, const Tensor& self, const Scalar& low,
                         const Scalar& high) {
  const Tensor is_inside = at::logical_and(at::gt(self, low), at::lt(self, high));
  return at::where(is_inside, grad, full_0d(0, grad.scalar_type(), grad.device()));
}

Tensor threshold(const Tensor& self, const Scalar& threshold, const Scalar& value) {
  return at::where(at::le(self, threshold), full_0d(value, self.scalar_type(), self.device()),
                   self);
}

Tensor xlogy(const Tensor& self, const Tensor& other) {
  const Tensor product = at::mul(self, at::log(other));
  const Tensor zero = full_0d(0, product.scalar_type(), product.device());
  const Tensor is_zero = at::logical_and(at::eq(self, 0), at::logical_not(at::isnan(other)));
  return at::where(is_zero, zero, product);
}

Tensor logit(const Tensor& self, std::optional<double> eps) {
  const Tensor given = is_float(self) ? self : self.to(at::get_default_dtype_as_scalartype());
  Tensor x = given;
  if (eps) {  // The lower end wins where the ends cross, as in PyTorch.
    const auto end = [&](double value) {
      return full_0d(value, given.scalar_type(), given.device());
    };
    x = at::where(at::gt(x, 1 - *eps), end(1 - *eps), x);
    x = at::where(at::lt(given, *eps), end(*eps), x);
  }
  return at::log(at::div(x, at::rsub(x, 1)));
}

Tensor logit_backward(const Tensor& grad, const Tensor& self, std::optional<double> eps) {
  const Tensor slope = at::div(grad, at::mul(self, at::rsub(self, 1)));
  const double low = eps.value_or(0), outside = eps ? 0 : std::numeric_limits<double>::quiet_NaN();
  const Tensor is_in = at::logical_and(at::ge(self, low), at::le(self, 1 - low));
  return at::where(is_in, slope, full_0d(outside, grad.scalar_type(), grad.device()));
}

Tensor nan_to_num(const Tensor& self, std::optional<double> nan, std::optional<double> high,
                  std::optional<double> low) {
  if (!is_float(self)) return self.clone();
  const auto limits = [&](double f64, double f32, double f16, double bf16) {
    switch (self.scalar_type()) {
      case at::kDouble:
        return f64;
      case at::kFloat:
        return f32;
      case at::kHalf:
        return f16;
      default:
        return bf16;
    }
  };
  const double most = limits(std::numeric_limits<double>::max(), std::numeric_limits<float>::max(),
                             65504.0, 3.3895313892515355e38);
  const auto value = [&](double number) {
    return full_0d(number, self.scalar_type(), self.device());
  };
  Tensor result = at::where(at::isnan(self), value(nan.value_or(0)), self);
  const double infinity = std::numeric_limits<double>::infinity();
  result = at::where(at::eq(result, infinity), value(high.value_or(most)), result);
  return at::where(at::eq(result, -infinity), value(low.value_or(-most)), result);
}

Tensor glu(const Tensor& self, int64_t dim) {
  const int64_t axis = at::maybe_wrap_dim(dim, self.dim());
  require(self.dim() > 0 && self.size(axis) % 2 == 0, "glu halves an axis of even extent");
  const auto halves = self.chunk(2, axis);
  return at::mul(halves[0], at::sigmoid(halves[1]));
}

Tensor glu_backward(const Tensor& grad, const Tensor& self, int64_t dim) {
  const auto halves = self.chunk(2, at::maybe_wrap_dim(dim, self.dim()));
  const Tensor gate = at::sigmoid(halves[1]);
  const Tensor slope = at::mul(gate, at::rsub(gate, 1));
  return at::cat({at::mul(grad, gate), at::mul(at::mul(grad, halves[0]), slope)}, dim);
}

// a + value * (b * c) for 16 bits, where all is in f32 and rounded once, and for integers.
Tensor addcmul_other(const Tensor& a, const Tensor& b, const Tensor& c, const Scalar& value) {
  if (!is_float(a)) return at::add(a, at::mul(b, c), value);
  require(a.itemsize() == 2, "addcmul is not served");
  return at::addcmul(a.to(at::kFloat), b.to(at::kFloat), c.to(at::kFloat), value)
      .to(a.scalar_type());
}

Tensor addcdiv_16(const Tensor& a, const Tensor& b, const Tensor& c, const Scalar& value) {
  require(a.itemsize() == 2 && is_float(a), "addcdiv is computed for floats alone");
  return at::addcdiv(a.to(at::kFloat), b.to(at::kFloat), c.to(at::kFloat), value)
      .to(a.scalar_type());
}

Tensor rsub_scaled(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  return at::sub(other, at::mul(self, alpha));
}

Tensor threshold_backward(const Tensor& grad, const Tensor& self, const Scalar& threshold) {
  return at::where(at::le(self, threshold), full_0d(0, grad.scalar_type(), grad.device()), grad);
}

Tensor hardshrink(const Tensor& self, const Scalar& bound) {
  return at::where(at::le(at::abs(self), bound), full_0d(0, self.scalar_type(), self.device()),
                   self);
}

Tensor hardshrink_backward(const Tensor& grad, const Tensor& self, const Scalar& bound) {
  return at::where(at::le(at::abs(self), bound), full_0d(0, grad.scalar_type(), grad.device()),
                   grad);
}

Tensor softshrink(const Tensor& self, const Scalar& bound) {
  return at::sub(self, at::clamp(self, -bound.toDouble(), bound.toDouble()));
}

Tensor is_infinity(const Tensor& self, double infinity) {
  if (!is_float(self)) return at::zeros_like(self, self.options().dtype(at::kBool));
  return at::eq(self, infinity);
}
Tensor isposinf(const Tensor& self) { return is_infinity(self, INFINITY); }
Tensor isneginf(const Tensor& self) { return is_infinity(self, -INFINITY); }

Tensor prelu(const Tensor& self, const Tensor& weight) {
  return Call("leaky_relu").in("x", self).in("slope", weight.expand_as(self)).run_one(self);
}

std::tuple<Tensor, Tensor> prelu_backward(const Tensor& grad, const Tensor& self,
                                          const Tensor& weight) {
  const Tensor is_above = at::gt(self, 0);
  const Tensor zero = full_0d(0, grad.scalar_type(), grad.device());
  return {at::where(is_above, grad, at::mul(grad, weight)),
          at::where(is_above, zero, at::mul(grad, self))};
}

bool equal(const Tensor& self, const Tensor& other) {
  if (self.sizes() != other.sizes()) return false;
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "Expected object of data type ",
              self.scalar_type(), " but got data type ", other.scalar_type(),
              " for argument 'other' in call to equal");
  if (self.numel() == 0) return true;
  return at::all(at::eq(self, other)).item<bool>();
}

Tensor& eye_out(int64_t rows, int64_t columns, Tensor& out) {
  TORCH_CHECK(rows >= 0 && columns >= 0, "n and m must be greater or equal to 0, got ", rows,
              " and ", columns);
  out.resize_({rows, columns});
  fill_all(out, 0);
  Tensor diagonal = out.diagonal();
  fill_all(diagonal, 1);
  return out;
}

}  // namespace

Tensor full_0d(const Scalar& value, at::ScalarType type, at::Device device) {
  Tensor tensor = new_empty({}, type, device);
  try {
    fill_all(tensor, value);
  } catch (const Unsupported&) {  // A complex number, say.
    copy_into(at::scalar_tensor(value, at::TensorOptions().dtype(type)), tensor);
  }
  return tensor;
}

void compose_numbers() {
  compose("fill_.Scalar", &fill_all);
  compose("fill_.Tensor", &fill_tensor_);
  compose("zero_", &fill_zero);
  compose("arange.start_out", &arange_out);
  compose("linspace.out", &linspace_out);
  compose("eye.m_out", &eye_out);
  compose("cat", &cat);
  compose("div.Tensor_mode", &div_mode);
  compose("softplus", &softplus);
  compose("softplus_backward", &softplus_backward);
  compose("elu", &elu);
  compose("elu_backward", &elu_backward);
  compose("celu", &celu);
  compose("log_sigmoid_forward", &log_sigmoid_forward);
  compose("log_sigmoid_backward", &log_sigmoid_backward);
  compose("hardtanh_backward", &hardtanh_backward);
  compose("threshold", &threshold);
  compose("xlogy.Tensor", &xlogy);
  compose("logit", &logit);
  compose("logit_backward", &logit_backward);
  compose("nan_to_num", &nan_to_num);
  compose("glu", &glu);
  compose("glu_backward", &glu_backward);
  compose("addcmul", &addcmul_other);
  compose("addcdiv", &addcdiv_16);
  compose("rsub.Tensor", &rsub_scaled);
  compose("threshold_backward", &threshold_backward);
  compose("hardshrink", &hardshrink);
  compose("hardshrink_backward", &hardshrink_backward);
  compose("softshrink", &softshrink);
  compose("softshrink_backward", &hardshrink_backward);
  compose("isposinf", &isposinf);
  compose("isneginf", &isneginf);
  compose("_prelu_kernel", &prelu);
  compose("_prelu_kernel_backward", &prelu_backward);
  compose("equal", &equal);
}

}  // namespace bpt

// Reductions that give several results, or are made of several ops.
#include "compose.h"

namespace bpt {
namespace {

std::vector<int64_t> axes_of(const Tensor& x, at::OptionalIntArrayRef dim) {
  std::vector<int64_t> axes;
  if (dim) axes = dim->vec();
  if (axes.empty()) {
    for (int64_t axis = 0; axis < x.dim(); ++axis) axes.push_back(axis);
  }
  for (int64_t& axis : axes) axis = at::maybe_wrap_dim(axis, x.dim());
  if (x.dim() == 0) axes.clear();
  return axes;
}

Tensor variance(const Tensor& x, at::OptionalIntArrayRef dim,
                const std::optional<Scalar>& correction, bool keepdim) {
  const double less = correction ? correction->toDouble() : 1;
  require(is_float(x) && less == std::floor(less), "var takes floats and a whole correction");
  Call call("var");
  call.in("x", x).ints("axes", axes_of(x, dim)).set("keepdims", int64_t{keepdim});
  return call.set("correction", static_cast<int64_t>(less)).run_one();
}

Tensor std_of(const Tensor& x, at::OptionalIntArrayRef dim, const std::optional<Scalar>& correction,
              bool keepdim) {
  return at::sqrt(variance(x, dim, correction, keepdim));
}

std::tuple<Tensor, Tensor> var_mean(const Tensor& x, at::OptionalIntArrayRef dim,
                                    const std::optional<Scalar>& correction, bool keepdim) {
  return {variance(x, dim, correction, keepdim), at::mean(x, axes_of(x, dim), keepdim)};
}

std::tuple<Tensor, Tensor> std_mean(const Tensor& x, at::OptionalIntArrayRef dim,
                                    const std::optional<Scalar>& correction, bool keepdim) {
  return {std_of(x, dim, correction, keepdim), at::mean(x, axes_of(x, dim), keepdim)};
}

Tensor extremum(const char* op, const Tensor& x, int64_t axis, bool keepdim) {
  Call call(op);
  return call.in("x", x).ints("axes", axes_of(x, axis)).set("keepdims", int64_t{keepdim}).run_one();
}

Tensor place_of_extremum(const char* op, const Tensor& x, int64_t axis, bool keepdim) {
  Call call(op);
  return call.in("x", x)
      .set("axis", at::maybe_wrap_dim(axis, x.dim()))
      .set("keepdims", int64_t{keepdim})
      .run_one();
}

std::tuple<Tensor, Tensor> max_dim(const Tensor& x, int64_t dim, bool keepdim) {
  return {extremum("amax", x, dim, keepdim), place_of_extremum("argmax", x, dim, keepdim)};
}

std::tuple<Tensor, Tensor> min_dim(const Tensor& x, int64_t dim, bool keepdim) {
  return {extremum("amin", x, dim, keepdim), place_of_extremum("argmin", x, dim, keepdim)};
}

std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim, bool keepdim) {
  const Tensor row = dim ? x : x.reshape({-1});
  const bool keeps = keepdim && dim;
  return {extremum("amin", row, dim.value_or(0), keeps),
          extremum("amax", row, dim.value_or(0), keeps)};
}

void running(const char* op, const Tensor& x, Tensor& values, Tensor& indices, int64_t dim) {
  Call call(op);
  const auto outs =
      call.in("x", x).set("axis", at::maybe_wrap_dim(dim, x.dim())).want("indices").run();
  copy_into(outs[0], values);
  copy_into(outs[1], indices);
}

void cummax(const Tensor& x, Tensor& values, Tensor& indices, int64_t dim) {
  running("cummax", x, values, indices, dim);
}

void cummin(const Tensor& x, Tensor& values, Tensor& indices, int64_t dim) {
  running("cummin", x, values, indices, dim);
}

Tensor norm_dim(const Tensor& x, const std::optional<Scalar>& p, IntArrayRef dim, bool keepdim) {
  require(is_float(x), "norms are computed for floats alone");
  return at::linalg_vector_norm(x, p.value_or(2), dim, keepdim, std::nullopt);
}

Tensor norm_dtype(const Tensor& x, const std::optional<Scalar>& p, IntArrayRef dim, bool keepdim,
                  at::ScalarType dtype) {
  require(is_float(x), "norms are computed for floats alone");
  return at::linalg_vector_norm(x, p.value_or(2), dim, keepdim, dtype);
}

Tensor trace(const Tensor& x) {
  require(x.dim() == 2, "trace takes a matrix");
  return at::sum(x.diagonal());
}

Tensor nansum(const Tensor& x, at::OptionalIntArrayRef dim, bool keepdim,
              std::optional<at::ScalarType> dtype) {
  if (!is_float(x)) return at::sum(x, axes_of(x, dim), keepdim, dtype);
  const Tensor zero = full_0d(0, x.scalar_type(), x.device());
  return at::sum(at::where(at::isnan(x), zero, x), axes_of(x, dim), keepdim, dtype);
}

}  // namespace

void compose_reductions() {
  compose("var.correction", &variance);
  compose("std.correction", &std_of);
  compose("var_mean.correction", &var_mean);
  compose("std_mean.correction", &std_mean);
  compose("max.dim", &max_dim);
  compose("min.dim", &min_dim);
  compose("aminmax", &aminmax);
  compose("_cummax_helper", &cummax);
  compose("_cummin_helper", &cummin);
  compose("norm.ScalarOpt_dim", &norm_dim);
  compose("norm.ScalarOpt_dim_dtype", &norm_dtype);
  compose("trace", &trace);
  compose("nansum", &nansum);
}

}  // namespace bpt

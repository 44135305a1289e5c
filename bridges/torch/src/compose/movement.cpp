// Moving elements: flip, roll, padding, and pictures of another size.
#include <ATen/WrapDimUtilsMulti.h>

#include "compose.h"

namespace bpt {
namespace {

Tensor flipped(const Tensor& self, IntArrayRef dims) {
  at::dim_list_to_bitset(dims, self.dim());  // It throws for a dimension that stands there twice.
  Tensor y = self;
  for (const int64_t dim : dims) {
    require(self.dim() > 0, "flip of a tensor without axes");
    y = Call("flip").in("x", y).set("axis", at::maybe_wrap_dim(dim, self.dim())).run_one();
  }
  return y.is_same(self) ? self.clone() : y;
}

Tensor rolled(const Tensor& self, IntArrayRef shifts, IntArrayRef dims) {
  if (self.numel() == 0) return self.clone();
  if (dims.empty()) {
    TORCH_CHECK(shifts.size() == 1, "shifts and dimensions must align. shifts: ", shifts.size(),
                ", dims:0");
    const int64_t first = 0;
    return rolled(self.reshape({-1}), shifts, first).reshape(self.sizes());
  }
  TORCH_CHECK(shifts.size() == dims.size(),
              "shifts and dimensions must align. shifts: ", shifts.size(), ", dims:", dims.size());
  Tensor y = self;
  for (size_t i = 0; i < dims.size(); ++i) {
    require(self.dim() > 0, "roll of a tensor without axes");
    const int64_t axis = at::maybe_wrap_dim(dims[i], self.dim());
    y = Call("roll").in("x", y).set("shift", shifts[i]).set("axis", axis).run_one();
  }
  return y;
}

// PyTorch lists the paddings from the last axis on. A negative one cuts.
Tensor padded(const Tensor& self, IntArrayRef pad, const char* mode, const Scalar& value) {
  require(pad.size() % 2 == 0 && static_cast<int64_t>(pad.size()) <= 2 * self.dim(),
          "the list of paddings has two numbers for each axis");
  Tensor y = self;
  for (size_t i = 0; i < pad.size(); i += 2) {
    const int64_t axis = self.dim() - 1 - static_cast<int64_t>(i / 2);
    const int64_t before = std::min<int64_t>(pad[i], 0), after = std::min<int64_t>(pad[i + 1], 0);
    const int64_t kept = y.size(axis) + before + after;
    require(kept >= 0, "a negative padding cuts more than there is");
    if (before < 0 || after < 0) y = y.narrow(axis, -before, kept);
    if (pad[i] <= 0 && pad[i + 1] <= 0) continue;
    Call call("pad");
    call.in("x", y).set("axis", axis).set("before", std::max<int64_t>(pad[i], 0));
    call.set("after", std::max<int64_t>(pad[i + 1], 0)).choose("mode", mode);
    y = call.scalar("value", fitted(value, y.scalar_type())).run_one();
  }
  return y.is_same(self) || y.is_alias_of(self) ? y.clone() : y;
}

Tensor constant_pad(const Tensor& self, IntArrayRef pad, const Scalar& value) {
  return padded(self, pad, "constant", value);
}

Tensor reflection_pad(const Tensor& self, IntArrayRef pad) {
  return padded(self, pad, "reflect", 0);
}

Tensor replication_pad(const Tensor& self, IntArrayRef pad) {
  return padded(self, pad, "replicate", 0);
}

// The gradient adds each element to the one that it was taken from: the padded numbers of the
// places say which that is.
Tensor pad_backward(const char* mode, const Tensor& grad, const Tensor& self, IntArrayRef pad) {
  const auto rank = static_cast<int64_t>(pad.size() / 2);
  std::vector<int64_t> places = self.sizes().slice(self.dim() - rank).vec();
  const int64_t count = c10::multiply_integers(places);
  const Tensor numbers = at::arange(count, self.options().dtype(at::kLong)).reshape(places);
  const Tensor index = padded(numbers, pad, mode, 0).reshape({-1});
  const Tensor rows = grad.reshape({-1, index.size(0)});
  const Tensor zeros = at::zeros({rows.size(0), count}, grad.options());
  return at::index_add(zeros, 1, index, rows).reshape(self.sizes());
}

Tensor reflection_backward(const Tensor& grad, const Tensor& self, IntArrayRef pad) {
  return pad_backward("reflect", grad, self, pad);
}

Tensor replication_backward(const Tensor& grad, const Tensor& self, IntArrayRef pad) {
  return pad_backward("replicate", grad, self, pad);
}

// How PyTorch's names for resampling are called here.
struct Sampling {
  const char* mode;
  const char* coordinates;
  const char* rounding;
  void put(Call& call) const {
    call.choose("mode", mode).choose("coordinates", coordinates).choose("rounding", rounding);
  }
};
constexpr Sampling kNearest{"nearest", "asymmetric", "floor"};
constexpr Sampling kNearestExact{"nearest", "half_pixel", "half_up"};
constexpr Sampling kLinear{"linear", "half_pixel", "half_down"};
constexpr Sampling kLinearCorners{"linear", "align_corners", "half_down"};

// A scale that is not the ratio of the sizes places the elements elsewhere.
void check_scale(std::optional<double> scale, int64_t in, int64_t out) {
  if (!scale) return;
  require(*scale > 0 && static_cast<double>(in) * *scale == static_cast<double>(out),
          "the scale is not the ratio of the sizes");
}

Tensor sampled(const Sampling& how, const Tensor& self, IntArrayRef size) {
  Call call("interpolate");
  how.put(call);
  return call.in("x", self).ints("output_size", size).run_one();
}

Tensor sampled_backward(const Sampling& how, const Tensor& grad, IntArrayRef input) {
  Call call("interpolate_backward");
  how.put(call);
  return call.in("grad_y", grad).ints("input_size", input.slice(2)).run_one();
}

template <const Sampling* kHow>
Tensor nearest1d(const Tensor& self, IntArrayRef size, std::optional<double> scale) {
  check_scale(scale, self.size(2), size[0]);
  return sampled(*kHow, self, size);
}

template <const Sampling* kHow>
Tensor nearest1d_backward(const Tensor& grad, IntArrayRef size, IntArrayRef input,
                          std::optional<double> scale) {
  check_scale(scale, input[2], size[0]);
  return sampled_backward(*kHow, grad, input);
}

template <const Sampling* kHow>
Tensor nearest2d(const Tensor& self, IntArrayRef size, std::optional<double> h,
                 std::optional<double> w) {
  check_scale(h, self.size(2), size[0]);
  check_scale(w, self.size(3), size[1]);
  return sampled(*kHow, self, size);
}

template <const Sampling* kHow>
Tensor nearest2d_backward(const Tensor& grad, IntArrayRef size, IntArrayRef input,
                          std::optional<double> h, std::optional<double> w) {
  check_scale(h, input[2], size[0]);
  check_scale(w, input[3], size[1]);
  return sampled_backward(*kHow, grad, input);
}

Tensor linear1d(const Tensor& self, IntArrayRef size, bool corners, std::optional<double> scale) {
  if (!corners) check_scale(scale, self.size(2), size[0]);
  return sampled(corners ? kLinearCorners : kLinear, self, size);
}

Tensor linear1d_backward(const Tensor& grad, IntArrayRef size, IntArrayRef input, bool corners,
                         std::optional<double> scale) {
  if (!corners) check_scale(scale, input[2], size[0]);
  return sampled_backward(corners ? kLinearCorners : kLinear, grad, input);
}

template <const Sampling* kHow>
Tensor nearest3d(const Tensor& self, IntArrayRef size, std::optional<double> d,
                 std::optional<double> h, std::optional<double> w) {
  check_scale(d, self.size(2), size[0]);
  check_scale(h, self.size(3), size[1]);
  check_scale(w, self.size(4), size[2]);
  return sampled(*kHow, self, size);
}

template <const Sampling* kHow>
Tensor nearest3d_backward(const Tensor& grad, IntArrayRef size, IntArrayRef input,
                          std::optional<double> d, std::optional<double> h,
                          std::optional<double> w) {
  check_scale(d, input[2], size[0]);
  check_scale(h, input[3], size[1]);
  check_scale(w, input[4], size[2]);
  return sampled_backward(*kHow, grad, input);
}

Tensor trilinear3d(const Tensor& self, IntArrayRef size, bool corners, std::optional<double> d,
                   std::optional<double> h, std::optional<double> w) {
  if (!corners) return nearest3d<&kLinear>(self, size, d, h, w);
  return sampled(kLinearCorners, self, size);
}

Tensor trilinear3d_backward(const Tensor& grad, IntArrayRef size, IntArrayRef input, bool corners,
                            std::optional<double> d, std::optional<double> h,
                            std::optional<double> w) {
  if (!corners) return nearest3d_backward<&kLinear>(grad, size, input, d, h, w);
  return sampled_backward(kLinearCorners, grad, input);
}

// The gradient of the windows along an axis: each element goes back to where it was taken from.
Tensor unfold_backward(const Tensor& grad, IntArrayRef sizes, int64_t dim, int64_t size,
                       int64_t step) {
  const auto rank = static_cast<int64_t>(sizes.size());
  require(rank > 0, "the windows of a tensor without axes");
  const int64_t axis = at::maybe_wrap_dim(dim, rank);
  const Tensor index =
      at::arange(sizes[axis], grad.options().dtype(at::kLong)).unfold(0, size, step).reshape({-1});
  const Tensor rows = grad.movedim(-1, axis + 1).flatten(axis, axis + 1);
  return at::index_add(at::zeros(sizes, grad.options()), axis, index, rows);
}

Tensor bilinear2d(const Tensor& self, IntArrayRef size, bool corners, std::optional<double> h,
                  std::optional<double> w) {
  if (!corners) check_scale(h, self.size(2), size[0]);
  if (!corners) check_scale(w, self.size(3), size[1]);
  return sampled(corners ? kLinearCorners : kLinear, self, size);
}

Tensor bilinear2d_backward(const Tensor& grad, IntArrayRef size, IntArrayRef input, bool corners,
                           std::optional<double> h, std::optional<double> w) {
  if (!corners) check_scale(h, input[2], size[0]);
  if (!corners) check_scale(w, input[3], size[1]);
  return sampled_backward(corners ? kLinearCorners : kLinear, grad, input);
}

}  // namespace

void compose_movement() {
  compose("flip", &flipped);
  compose("roll", &rolled);
  compose("constant_pad_nd", &constant_pad);
  for (const char* name : {"reflection_pad1d", "reflection_pad2d", "reflection_pad3d"}) {
    compose(name, &reflection_pad);
    compose((std::string(name) + "_backward").c_str(), &reflection_backward);
  }
  for (const char* name : {"replication_pad1d", "replication_pad2d", "replication_pad3d"}) {
    compose(name, &replication_pad);
    compose((std::string(name) + "_backward").c_str(), &replication_backward);
  }
  compose("upsample_nearest1d", &nearest1d<&kNearest>);
  compose("upsample_nearest2d", &nearest2d<&kNearest>);
  compose("_upsample_nearest_exact1d", &nearest1d<&kNearestExact>);
  compose("_upsample_nearest_exact2d", &nearest2d<&kNearestExact>);
  compose("upsample_nearest1d_backward", &nearest1d_backward<&kNearest>);
  compose("upsample_nearest2d_backward", &nearest2d_backward<&kNearest>);
  compose("upsample_nearest3d", &nearest3d<&kNearest>);
  compose("upsample_nearest3d_backward", &nearest3d_backward<&kNearest>);
  compose("_upsample_nearest_exact3d", &nearest3d<&kNearestExact>);
  compose("_upsample_nearest_exact1d_backward", &nearest1d_backward<&kNearestExact>);
  compose("_upsample_nearest_exact2d_backward", &nearest2d_backward<&kNearestExact>);
  compose("_upsample_nearest_exact3d_backward", &nearest3d_backward<&kNearestExact>);
  compose("upsample_trilinear3d", &trilinear3d);
  compose("upsample_trilinear3d_backward", &trilinear3d_backward);
  compose("unfold_backward", &unfold_backward);
  compose("upsample_linear1d", &linear1d);
  compose("upsample_linear1d_backward", &linear1d_backward);
  compose("upsample_bilinear2d", &bilinear2d);
  compose("upsample_bilinear2d_backward", &bilinear2d_backward);
}

}  // namespace bpt

// Operators over windows of a picture: convolution and pooling.
#include <ATen/native/Pool.h>

#include "compose.h"

namespace bpt {
namespace {

// The library has the padding before each axis, then that behind each.
std::vector<int64_t> twice(IntArrayRef list, int64_t count) {
  std::vector<int64_t> both = each(list, count);
  both.insert(both.end(), both.begin(), both.begin() + count);
  return both;
}

struct Conv {
  int64_t rank;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;

  Conv(const Tensor& x, IntArrayRef the_stride, IntArrayRef the_padding, IntArrayRef the_dilation,
       int64_t the_groups)
      : rank(x.dim() - 2),
        stride(each(the_stride, rank)),
        padding(twice(the_padding, rank)),
        dilation(each(the_dilation, rank)),
        groups(the_groups) {}
  void put(Call& call) const {
    call.ints("stride", stride).ints("padding", padding).ints("dilation", dilation);
    call.set("groups", groups);
  }
};

Tensor convolve(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation, bool is_transposed,
                IntArrayRef output_padding, int64_t groups) {
  const Conv conv(x, stride, padding, dilation, groups);
  Call call(is_transposed ? "convolution_transpose" : "convolution");
  conv.put(call);
  if (is_transposed) call.ints("output_padding", each(output_padding, conv.rank));
  return call.in("x", x).in("weight", weight).in_if("bias", bias).run_one();
}

std::tuple<Tensor, Tensor, Tensor> convolve_backward(const Tensor& grad, const Tensor& x,
                                                     const Tensor& weight, IntArrayRef stride,
                                                     IntArrayRef padding, IntArrayRef dilation,
                                                     bool is_transposed, IntArrayRef,
                                                     int64_t groups, std::array<bool, 3> mask) {
  const Conv conv(x, stride, padding, dilation, groups);
  Tensor grad_x, grad_weight, grad_bias;
  if (mask[0] && is_transposed) {
    Call call("convolution");
    conv.put(call);
    grad_x = call.in("x", grad).in("weight", weight).run_one();
  } else if (mask[0]) {
    Call call("convolution_backward_input");
    conv.put(call);
    call.in("grad_y", grad).in("weight", weight).ints("input_size", x.sizes().slice(2));
    grad_x = call.run_one();
  }
  if (mask[1]) {
    // A transposed convolution has the parts of its input and its gradient exchanged.
    Call call("convolution_backward_weight");
    conv.put(call);
    call.in("grad_y", is_transposed ? x : grad).in("x", is_transposed ? grad : x);
    grad_weight = call.ints("kernel_size", weight.sizes().slice(2)).run_one();
  }
  if (mask[2]) grad_bias = Call("convolution_backward_bias").in("grad_y", grad).run_one();
  return {grad_x, grad_weight, grad_bias};
}

// The CPU has no kernel of these operators, which only devices have: it computes the general ones.
Tensor convolution(const Tensor& x, const Tensor& weight, const OptionalTensor& bias,
                   IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                   bool is_transposed, IntArrayRef output_padding, int64_t groups) {
  try {
    return convolve(x, weight, bias, stride, padding, dilation, is_transposed, output_padding,
                    groups);
  } catch (const Unsupported& unsupported) {
    count_fallback("aten::convolution_overrideable", unsupported.reason);
  }
  const bool has_bias = bias && bias->defined();
  return at::convolution(x.cpu(), weight.cpu(), has_bias ? OptionalTensor(bias->cpu()) : bias,
                         stride, padding, dilation, is_transposed, output_padding, groups)
      .to(x.device());
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad, const Tensor& x,
                                                        const Tensor& weight, IntArrayRef stride,
                                                        IntArrayRef padding, IntArrayRef dilation,
                                                        bool is_transposed,
                                                        IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> mask) {
  try {
    return convolve_backward(grad, x, weight, stride, padding, dilation, is_transposed,
                             output_padding, groups, mask);
  } catch (const Unsupported& unsupported) {
    count_fallback("aten::convolution_backward_overrideable", unsupported.reason);
  }
  const int64_t channels = is_transposed ? weight.size(1) * groups : weight.size(0);
  const auto parts =
      at::convolution_backward(grad.cpu(), x.cpu(), weight.cpu(), channels, stride, padding,
                               dilation, is_transposed, output_padding, groups, mask);
  const auto back = [&](const Tensor& part) { return part.defined() ? part.to(x.device()) : part; };
  return {back(std::get<0>(parts)), back(std::get<1>(parts)), back(std::get<2>(parts))};
}

// A picture without the axis of the batch gets one for the call.
struct Batched {
  Tensor x;
  bool is_added;

  Batched(const Tensor& given, int64_t rank)
      : x(given.dim() == rank + 1 ? given.unsqueeze(0) : given), is_added(given.dim() == rank + 1) {
    require(x.dim() == rank + 2, "a picture has its channels, and perhaps a batch");
  }
  Tensor back(const Tensor& result) const { return is_added ? result.squeeze(0) : result; }
  IntArrayRef places() const { return x.sizes().slice(2); }
};

struct Pool {
  std::vector<int64_t> kernel, stride, padding, dilation;

  // ceil_mode is padding behind an axis, for as many elements as the last window leaves it.
  Pool(IntArrayRef places, IntArrayRef the_kernel, IntArrayRef the_stride, IntArrayRef the_padding,
       IntArrayRef the_dilation, bool is_ceil) {
    const auto rank = static_cast<int64_t>(places.size());
    kernel = each(the_kernel, rank);
    stride = the_stride.empty() ? kernel : each(the_stride, rank);
    padding = twice(the_padding, rank);
    dilation = each(the_dilation, rank);
    for (int64_t i = 0; is_ceil && i < rank; ++i) {
      const int64_t before = padding[i];
      const int64_t count = at::native::pooling_output_shape<int64_t>(places[i], kernel[i], before,
                                                                      stride[i], dilation[i], true);
      const int64_t reach = (count - 1) * stride[i] + dilation[i] * (kernel[i] - 1) + 1;
      const int64_t missing = reach - places[i] - 2 * before;
      if (missing > 0) padding[rank + i] += missing;
      is_extended |= missing > 0;
    }
  }
  void put(Call& call) const {
    call.ints("kernel_size", kernel).ints("stride", stride).ints("padding", padding);
  }
  bool is_extended = false;
};

template <int64_t kRank>
std::tuple<Tensor, Tensor> max_pool(const Tensor& self, IntArrayRef kernel, IntArrayRef stride,
                                    IntArrayRef padding, IntArrayRef dilation, bool is_ceil) {
  const Batched own(self, kRank);
  const Pool pool(own.places(), kernel, stride, padding, dilation, is_ceil);
  Call call("max_pool");
  pool.put(call);
  const auto outs = call.in("x", own.x).ints("dilation", pool.dilation).want("indices").run();
  return {own.back(outs[0]), own.back(outs[1])};
}

template <int64_t kRank>
Tensor max_pool_backward(const Tensor& grad, const Tensor& self, IntArrayRef, IntArrayRef,
                         IntArrayRef, IntArrayRef, bool, const Tensor& indices) {
  const Batched own(self, kRank), g(grad, kRank), i(indices, kRank);
  Call call("max_pool_backward");
  call.in("grad_y", g.x).in("indices", i.x).ints("input_size", own.places());
  return own.back(call.run_one());
}

// How an average is taken. What ceil_mode adds counts in no divisor, as in PyTorch.
Pool average(const Batched& own, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
             bool is_ceil, bool counts_padding, std::optional<int64_t> divisor) {
  const int64_t one = 1;
  Pool pool(own.places(), kernel, stride, padding, one, is_ceil);
  require(!divisor || (counts_padding && !pool.is_extended),
          "an average with a divisor of its own, and windows of several sizes");
  const bool has_padding = std::any_of(padding.begin(), padding.end(), [](int64_t p) { return p; });
  require(!pool.is_extended || !counts_padding || !has_padding,
          "an average that counts padding and goes beyond it");
  return pool;
}

// The sum of a window over another divisor than its size.
Tensor divided(const Tensor& mean, const Pool& pool, std::optional<int64_t> divisor) {
  if (!divisor) return mean;
  const auto size = static_cast<double>(c10::multiply_integers(pool.kernel));
  return at::mul(mean, size / static_cast<double>(*divisor));
}

template <int64_t kRank>
Tensor avg_pool(const Tensor& self, IntArrayRef kernel, IntArrayRef stride, IntArrayRef padding,
                bool is_ceil, bool counts_padding, std::optional<int64_t> divisor) {
  const Batched own(self, kRank);
  const Pool pool = average(own, kernel, stride, padding, is_ceil, counts_padding, divisor);
  Call call("avg_pool");
  pool.put(call);
  call.set("counts_padding", int64_t{counts_padding && !pool.is_extended});
  return own.back(divided(call.in("x", own.x).run_one(), pool, divisor));
}

template <int64_t kRank>
Tensor avg_pool_backward(const Tensor& grad, const Tensor& self, IntArrayRef kernel,
                         IntArrayRef stride, IntArrayRef padding, bool is_ceil, bool counts_padding,
                         std::optional<int64_t> divisor) {
  const Batched own(self, kRank), g(grad, kRank);
  const Pool pool = average(own, kernel, stride, padding, is_ceil, counts_padding, divisor);
  Call call("avg_pool_backward");
  pool.put(call);
  call.set("counts_padding", int64_t{counts_padding && !pool.is_extended});
  call.in("grad_y", divided(g.x, pool, divisor)).ints("input_size", own.places());
  return own.back(call.run_one());
}

template <int64_t kRank>
Tensor adaptive_avg_pool(const Tensor& self, IntArrayRef size) {
  const Batched own(self, kRank);
  return own.back(Call("adaptive_avg_pool").in("x", own.x).ints("output_size", size).run_one());
}

template <int64_t kRank>
Tensor adaptive_avg_pool_backward(const Tensor& grad, const Tensor& self) {
  const Batched own(self, kRank), g(grad, kRank);
  Call call("adaptive_avg_pool_backward");
  return own.back(call.in("grad_y", g.x).ints("input_size", own.places()).run_one());
}

template <int64_t kRank>
std::tuple<Tensor, Tensor> adaptive_max_pool(const Tensor& self, IntArrayRef size) {
  const Batched own(self, kRank);
  Call call("adaptive_max_pool");
  const auto outs =
      call.in("x", own.x).ints("output_size", each(size, kRank)).want("indices").run();
  return {own.back(outs[0]), own.back(outs[1])};
}

template <int64_t kRank>
Tensor adaptive_max_pool_backward(const Tensor& grad, const Tensor& self, const Tensor& indices) {
  return max_pool_backward<kRank>(grad, self, {}, {}, {}, {}, false, indices);
}

Tensor im2col(const Tensor& self, IntArrayRef kernel, IntArrayRef dilation, IntArrayRef padding,
              IntArrayRef stride) {
  const Batched own(self, 2);
  Call call("unfold");
  call.in("x", own.x).ints("kernel_size", each(kernel, 2)).ints("stride", each(stride, 2));
  call.ints("padding", twice(padding, 2)).ints("dilation", each(dilation, 2));
  return own.back(call.run_one());
}

Tensor col2im(const Tensor& self, IntArrayRef size, IntArrayRef kernel, IntArrayRef dilation,
              IntArrayRef padding, IntArrayRef stride) {
  const Tensor x = self.dim() == 2 ? self.unsqueeze(0) : self;
  Call call("fold");
  call.in("x", x).ints("output_size", each(size, 2)).ints("kernel_size", each(kernel, 2));
  call.ints("stride", each(stride, 2)).ints("padding", twice(padding, 2));
  call.ints("dilation", each(dilation, 2));
  return self.dim() == 2 ? call.run_one().squeeze(0) : call.run_one();
}

}  // namespace

void compose_windows() {
  compose("convolution_overrideable", &convolution);
  compose("convolution_backward_overrideable", &convolution_backward);
  compose("max_pool2d_with_indices", &max_pool<2>);
  compose("max_pool3d_with_indices", &max_pool<3>);
  compose("max_pool2d_with_indices_backward", &max_pool_backward<2>);
  compose("max_pool3d_with_indices_backward", &max_pool_backward<3>);
  compose("avg_pool2d", &avg_pool<2>);
  compose("avg_pool3d", &avg_pool<3>);
  compose("avg_pool2d_backward", &avg_pool_backward<2>);
  compose("avg_pool3d_backward", &avg_pool_backward<3>);
  compose("_adaptive_avg_pool2d", &adaptive_avg_pool<2>);
  compose("_adaptive_avg_pool3d", &adaptive_avg_pool<3>);
  compose("_adaptive_avg_pool2d_backward", &adaptive_avg_pool_backward<2>);
  compose("_adaptive_avg_pool3d_backward", &adaptive_avg_pool_backward<3>);
  compose("adaptive_max_pool2d", &adaptive_max_pool<2>);
  compose("adaptive_max_pool3d", &adaptive_max_pool<3>);
  compose("adaptive_max_pool2d_backward", &adaptive_max_pool_backward<2>);
  compose("adaptive_max_pool3d_backward", &adaptive_max_pool_backward<3>);
  compose("im2col", &im2col);
  compose("col2im", &col2im);
}

}  // namespace bpt

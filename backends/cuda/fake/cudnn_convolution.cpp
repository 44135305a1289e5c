#include "backends/cuda/fake/cudnn_convolution.hpp"

#include <map>

#include "backends/cuda/fake/floats.hpp"

namespace bp::cuda::fake {
namespace {

int64_t place(const Tensor& t, int64_t first, int64_t second, const Extents& spatial) {
  int64_t at = first * t.strides[0] + second * t.strides[1];
  for (size_t i = 0; i + 2 < t.ndim; ++i) at += spatial[i] * t.strides[i + 2];
  return at;
}

// Advances `at` to the next index within the spatial extents of `t`. Returns false after the last
// one.
bool advance(const Tensor& t, Extents& at) {
  for (size_t i = t.ndim - 2; i-- > 0;) {
    if (++at[i] < t.shape[i + 2]) return true;
    at[i] = 0;
  }
  return false;
}

// Finds the element of x that a tap of an output reads. Returns false if it is padding.
bool input_of(const Convolution& c, const Extents& to, const Extents& tap, Extents& from) {
  bool is_inside = true;
  for (size_t i = 0; i < c.axes(); ++i) {
    from[i] = to[i] * c.stride[i] - c.low[i] + tap[i] * c.dilation[i];
    is_inside = is_inside && from[i] >= 0 && from[i] < c.x.shape[i + 2];
  }
  return is_inside;
}

Extents turned(const Tensor& t, Extents tap) {
  for (size_t i = 0; i + 2 < t.ndim; ++i) tap[i] = t.shape[i + 2] - 1 - tap[i];
  return tap;
}

// Calls fn(x, weight, y) for each product of one element of y, with the places of the elements.
template <typename Fn>
void for_each_tap(const Convolution& c, bool is_turned, int64_t n, int64_t k, const Extents& to,
                  const Fn& fn) {
  const int64_t outputs = c.y.shape[1] / c.groups();
  for (int64_t channel = 0; channel < c.weight.shape[1]; ++channel) {
    Extents tap{};
    do {
      Extents from{};
      if (!input_of(c, to, tap, from)) continue;
      fn(place(c.x, n, k / outputs * c.weight.shape[1] + channel, from),
         place(c.weight, k, channel, is_turned ? turned(c.weight, tap) : tap),
         place(c.y, n, k, to));
    } while (advance(c.weight, tap));
  }
}

// Calls fn(x, weight, y) for each product of every element of y.
template <typename Fn>
void for_each_product(const Convolution& c, bool is_turned, const Fn& fn) {
  for (int64_t n = 0; n < c.y.shape[0]; ++n) {
    for (int64_t k = 0; k < c.y.shape[1]; ++k) {
      Extents to{};
      do {
        for_each_tap(c, is_turned, n, k, to, fn);
      } while (advance(c.y, to));
    }
  }
}

}  // namespace

bool fits(const Convolution& c) {
  if (c.weight.ndim != c.x.ndim || c.y.ndim != c.x.ndim || c.weight.shape[1] == 0) return false;
  bool does = c.x.shape[0] == c.y.shape[0] && c.y.shape[1] == c.weight.shape[0] &&
              c.x.shape[1] % c.weight.shape[1] == 0 && c.y.shape[1] % c.groups() == 0;
  for (size_t i = 0; i < c.axes(); ++i) {
    const int64_t reach = (c.weight.shape[i + 2] - 1) * c.dilation[i] + 1;
    const int64_t room = c.x.shape[i + 2] + c.low[i] + c.high[i] - reach;
    does = does && room >= 0 && c.y.shape[i + 2] == room / c.stride[i] + 1;
  }
  return does;
}

void compute(const Convolution& c, const At& at, bool is_turned) {
  const Tensor& result = c.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR ? c.y
                         : c.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
                             ? c.x
                             : c.weight;
  std::byte* const out = &result == &c.y ? at.y : &result == &c.x ? at.x : at.weight;
  std::map<int64_t, double> sums;  // By place, so that gaps between elements are not written.
  for (int64_t first = 0; first < result.shape[0]; ++first) {
    for (int64_t second = 0; second < result.shape[1]; ++second) {
      Extents spatial{};
      do {
        const int64_t there = place(result, first, second, spatial);
        sums[there] = 0;
      } while (advance(result, spatial));
    }
  }
  const auto read = [&](const std::byte* begin, const Tensor& t, int64_t there) {
    const double value = load(begin, t.type, there);
    return c.rounds ? as_tf32(value) : value;
  };
  for_each_product(c, is_turned, [&](int64_t x, int64_t weight, int64_t y) {
    if (&result == &c.y) {
      sums[y] += read(at.x, c.x, x) * read(at.weight, c.weight, weight);
    } else if (&result == &c.x) {
      sums[x] += read(at.y, c.y, y) * read(at.weight, c.weight, weight);
    } else {
      sums[weight] += read(at.x, c.x, x) * read(at.y, c.y, y);
    }
  });
  for (const auto& [there, sum] : sums) {
    const double before = c.beta == 0 ? 0.0 : c.beta * load(out, result.type, there);
    store(out, result.type, there, c.alpha * sum + before);
  }
}

}  // namespace bp::cuda::fake

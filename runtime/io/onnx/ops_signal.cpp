// Windows, Fourier transforms and mel filters. The host makes the tables in f64. A transform is a
// product with the matrix of its cosines and sines, so its cost grows with the square of the
// length; only one to real numbers is the op irfft.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

constexpr double kTurn = 2 * std::numbers::pi;

// Returns a - b * cos(t) + c * cos(2 t) for t from 0 to one turn.
Values cosine_window(const Call& call, double a, double b, double c) {
  const int64_t size = check_host_count(call, call.integer(0), "the size of the window");
  const int64_t steps = call.flag("periodic", true) ? size : size - 1;
  std::vector<double> window;
  for (int64_t i = 0; i < size; ++i) {
    const double t =
        kTurn * static_cast<double>(i) / static_cast<double>(std::max<int64_t>(steps, 1));
    window.push_back(a - b * std::cos(t) + c * std::cos(2 * t));
  }
  const bp_dtype dtype = call.dtype("output_datatype", BP_F32);
  return {floats_on(call.device(), window, {size}, dtype)};
}

Values hann_window(const Call& call) { return cosine_window(call, 0.5, 0.5, 0); }
Values hamming_window(const Call& call) { return cosine_window(call, 25.0 / 46, 21.0 / 46, 0); }
Values blackman_window(const Call& call) { return cosine_window(call, 0.42, 0.5, 0.08); }

// ---- Fourier transforms ------------------------------------------------------------------------

struct Transform {
  int64_t length = 0;
  bool is_inverse = false, is_onesided = false;
};

// The matrices (length, frequencies) of the cosines and the sines.
struct Table {
  Tensor cosines, sines;
};

Table make_table(const Call& call, const Transform& transform, bp_dtype dtype) {
  const int64_t n = transform.length;
  const int64_t frequencies = transform.is_onesided ? n / 2 + 1 : n;
  if (n < 1) call.refuse("the length of the transform is " + std::to_string(n));
  check_host_count(call, n > kMostOnHost ? n : n * frequencies, "the size of the transform");
  std::vector<double> cosines, sines;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < frequencies; ++k) {
      const double angle = kTurn * static_cast<double>(i * k % n) / static_cast<double>(n);
      cosines.push_back(std::cos(angle));
      sines.push_back(std::sin(angle));
    }
  }
  const Ints shape{n, frequencies};
  return {floats_on(call.device(), cosines, shape, dtype),
          floats_on(call.device(), sines, shape, dtype)};
}

// Cuts an axis, or fills it with zeros.
Tensor fit(const Tensor& x, int64_t axis, int64_t length) {
  if (x.shape(axis) >= length) return x.narrow(axis, 0, length);
  return pad_axis(x, axis, 0, length - x.shape(axis), scalar_like(0, x));
}

// The last axis of x has the real part, and the imaginary part if there is one.
Tensor transformed(const Call& call, const Tensor& given, int64_t axis,
                   const Transform& transform) {
  const int64_t parts = given.shape(-1);
  if (parts != 1 && parts != 2) {
    call.refuse("the last axis of input 0 has the extent " + std::to_string(parts) +
                "; allowed: 1 (real) and 2 (complex)");
  }
  const Tensor x = fit(given, axis, transform.length).transpose(axis, -2);
  const Table table = make_table(call, transform, x.dtype());
  const Tensor real = x.select(-1, 0);
  Tensor y_real = matmul_nd(real, table.cosines);
  Tensor y_imaginary = matmul_nd(real, transform.is_inverse ? table.sines : neg(table.sines));
  if (parts == 2) {
    const Tensor imaginary = x.select(-1, 1);
    const Tensor turned = matmul_nd(imaginary, table.sines);
    y_real = transform.is_inverse ? y_real - turned : y_real + turned;
    y_imaginary = y_imaginary + matmul_nd(imaginary, table.cosines);
  }
  const Tensor y = concat({y_real.unsqueeze(-1), y_imaginary.unsqueeze(-1)}, y_real.ndim());
  const Tensor placed = y.transpose(axis, -2);
  return transform.is_inverse ? placed / static_cast<double>(transform.length) : placed;
}

// A transform to real numbers, of which the input has the first half of the frequencies.
Tensor transformed_to_real(const Call& call, const Tensor& given, int64_t axis) {
  const int64_t length = call.has(1) ? call.integer(1) : 2 * (given.shape(axis) - 1);
  if (given.shape(-1) != 2 || length < 1) {
    call.refuse(
        "input 0 is " + bp::to_string(given.shape()) + " and the length " + std::to_string(length) +
        "; allowed: complex numbers, of which the last axis has both parts, and 1 and above");
  }
  return irfft(fit(given, axis, length / 2 + 1), length, axis).unsqueeze(-1);
}

Values dft(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t given = call.opset() < 20 ? call.integer("axis", 1)
                        : call.has(2)     ? call.integer(2)
                                          : -2;
  const int64_t axis = call.axis(given, x.ndim());
  if (axis == x.ndim() - 1) call.refuse("the last axis has the parts of complex numbers");
  const Transform transform{call.has(1) ? call.integer(1) : x.shape(axis),
                            call.flag("inverse", false), call.flag("onesided", false)};
  if (transform.is_inverse && transform.is_onesided) return {transformed_to_real(call, x, axis)};
  return {transformed(call, x, axis, transform)};
}

Values stft(const Call& call) {
  const Tensor x = call.input(0);
  if (x.ndim() != 3) call.refuse("input 0 has " + std::to_string(x.ndim()) + " axes; allowed: 3");
  const Tensor window = call.optional(2);
  const int64_t step = call.integer(1);
  const int64_t length = call.has(3) ? call.integer(3) : window ? window.numel() : x.shape(1);
  if (step < 1 || length < 1 || length > x.shape(1)) {
    call.refuse("frames of " + std::to_string(length) + " elements every " + std::to_string(step) +
                " do not fit into " + std::to_string(x.shape(1)));
  }
  const int64_t count = (x.shape(1) - length) / step + 1;
  Ints places;
  for (int64_t frame = 0; frame < check_host_count(call, count, "the number of frames"); ++frame) {
    for (int64_t i = 0; i < length; ++i) places.push_back(frame * step + i);
  }
  const Tensor taken = index_select(x, ints_on(x.device(), places, {count * length}), 1);
  Tensor frames = taken.reshape({x.shape(0), count, length, x.shape(2)});
  if (window) frames = frames * window.reshape({length, 1});
  return {transformed(call, frames, 2, {length, false, call.flag("onesided", true)})};
}

// ---- Mel filters -------------------------------------------------------------------------------

// Returns the bins of the spectrum at which the filters begin, peak and end.
Ints mel_edges(int64_t filters, int64_t length, int64_t rate, double low, double high) {
  const auto to_mel = [](double hertz) { return 2595 * std::log10(1 + hertz / 700); };
  const double step = (to_mel(high) - to_mel(low)) / static_cast<double>(filters + 2);
  Ints edges;
  for (int64_t i = 0; i < filters + 2; ++i) {
    const double mel = to_mel(low) + static_cast<double>(i) * step;
    const double hertz = 700 * (std::pow(10, mel / 2595) - 1);
    edges.push_back(static_cast<int64_t>(
        std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
  }
  return edges;
}

Values mel_weight_matrix(const Call& call) {
  const int64_t filters = check_host_count(call, call.integer(0), "the number of filters");
  const int64_t length = check_host_count(call, call.integer(1), "the length of the transform");
  const int64_t rate = call.integer(2);
  const int64_t bins = length / 2 + 1;
  if (rate < 1) call.refuse("the sample rate is " + std::to_string(rate));
  check_host_count(call, filters > kMostOnHost / bins ? -1 : filters * bins, "the size");
  const Ints edges = mel_edges(filters, length, rate, call.number(3), call.number(4));
  if (edges.front() < 0 || edges.back() > bins) {
    call.refuse("the edges of the filters lie outside of the spectrum");
  }
  std::vector<double> weights(static_cast<size_t>(filters * bins));
  const auto at = [&](int64_t bin, int64_t filter) -> double& {
    return weights[static_cast<size_t>(std::min(bin, bins - 1) * filters + filter)];
  };
  for (int64_t filter = 0; filter < filters; ++filter) {
    const auto f = static_cast<size_t>(filter);
    const int64_t low = edges[f], peak = edges[f + 1], high = edges[f + 2];
    if (low == peak) at(peak, filter) = 1;
    for (int64_t bin = low; bin <= peak && low < peak; ++bin) {
      at(bin, filter) = static_cast<double>(bin - low) / static_cast<double>(peak - low);
    }
    for (int64_t bin = peak; bin < high; ++bin) {
      at(bin, filter) = static_cast<double>(high - bin) / static_cast<double>(high - peak);
    }
  }
  return {
      floats_on(call.device(), weights, {bins, filters}, call.dtype("output_datatype", BP_F32))};
}

constexpr OpRow kRows[] = {
    {"BlackmanWindow", 17, blackman_window, "output_datatype periodic", OnnxRoute::kHost},
    {"DFT", 17, dft, "axis inverse onesided"},
    {"HammingWindow", 17, hamming_window, "output_datatype periodic", OnnxRoute::kHost},
    {"HannWindow", 17, hann_window, "output_datatype periodic", OnnxRoute::kHost},
    {"MelWeightMatrix", 17, mel_weight_matrix, "output_datatype", OnnxRoute::kHost},
    {"STFT", 17, stft, "onesided"},
};

}  // namespace

std::span<const OpRow> signal_ops() { return kRows; }

}  // namespace bp::onnx

// The cases of the Fourier transforms. Even and odd lengths differ in which bins count twice.
#include "backplane/runtime/ops.hpp"
#include "runtime/autograd/gradient_cases.hpp"

namespace bp {
namespace {

using Inputs = std::span<const Tensor>;
using enum FourierNormalization;

}  // namespace

std::vector<GradientCase> spectral_gradient_cases() {
  return {
      {"fft", {{2, 5, 2}}, [](Inputs x) { return fft(x[0], 1); }},
      {"fft, ortho", {{4, 3, 2}}, [](Inputs x) { return fft(x[0], 0, kOrtho); }},
      {"fft, forward", {{6, 2}}, [](Inputs x) { return fft(x[0], 0, kForward); }},
      {"ifft", {{2, 5, 2}}, [](Inputs x) { return ifft(x[0], 1); }},
      {"ifft, ortho", {{4, 3, 2}}, [](Inputs x) { return ifft(x[0], 0, kOrtho); }},
      {"ifft, forward", {{6, 2}}, [](Inputs x) { return ifft(x[0], 0, kForward); }},
      {"rfft", {{2, 5}}, [](Inputs x) { return rfft(x[0], 1); }},
      {"rfft, even", {{6, 2}}, [](Inputs x) { return rfft(x[0], 0); }},
      {"rfft, ortho", {{4, 3}}, [](Inputs x) { return rfft(x[0], 0, kOrtho); }},
      {"rfft, forward", {{5}}, [](Inputs x) { return rfft(x[0], 0, kForward); }},
      {"irfft", {{2, 3, 2}}, [](Inputs x) { return irfft(x[0], 5, 1); }},
      {"irfft, even", {{4, 2, 2}}, [](Inputs x) { return irfft(x[0], 6, 0); }},
      {"irfft, ortho", {{2, 3, 2}}, [](Inputs x) { return irfft(x[0], 4, 1, kOrtho); }},
      {"irfft, forward", {{3, 2}}, [](Inputs x) { return irfft(x[0], 5, 0, kForward); }},
  };
}

}  // namespace bp

#include "runtime/io/onnx/window.hpp"

#include <algorithm>

namespace bp::onnx {
namespace {

std::vector<int64_t> positive(const Call& call, const char* name, size_t count) {
  std::vector<int64_t> numbers = call.integers(name, std::vector<int64_t>(count, 1));
  const bool is_right =
      numbers.size() == count && std::ranges::all_of(numbers, [](int64_t n) { return n > 0; });
  if (is_right) return numbers;
  call.refuse("attribute '" + std::string(name) + "' is " + to_string(IntList(numbers)) +
              "; allowed: " + std::to_string(count) + " numbers from 1 on");
}

// Pads so that there is one window for each stride, as many elements before as after. If the number
// is odd, `is_upper` puts one more behind.
void pad_same(Window& window, IntList spatial, bool is_upper) {
  const size_t count = window.axis_count();
  for (size_t i = 0; i < count; ++i) {
    const int64_t windows = (spatial[i] + window.strides[i] - 1) / window.strides[i];
    const int64_t total =
        std::max<int64_t>((windows - 1) * window.strides[i] + window.reach(i) - spatial[i], 0);
    window.pads[i] = is_upper ? total / 2 : total - total / 2;
    window.pads[count + i] = total - window.pads[i];
  }
}

// A last window that is not full counts too, if it begins in the input or in the pads before it.
void add_ceil_excess(Window& window, IntList spatial) {
  const size_t count = window.axis_count();
  for (size_t i = 0; i < count; ++i) {
    const int64_t whole = spatial[i] + window.pads[i] + window.pads[count + i] - window.reach(i);
    const int64_t stride = window.strides[i];
    const int64_t last = (whole + stride - 1) / stride * stride;
    if (whole > 0 && last < spatial[i] + window.pads[i]) window.ceil_excess[i] = last - whole;
  }
}

}  // namespace

Window read_window(const Call& call, IntList shape, std::vector<int64_t> kernel) {
  if (shape.size() < 3 || shape.size() > 5) {
    call.unsupported("input 0 has the shape " + to_string(shape) +
                     "; allowed: 1 to 3 spatial axes behind the first two");
  }
  const size_t count = shape.size() - 2;
  const IntList spatial(shape.data() + 2, count);
  if (kernel.empty() && !call.has("kernel_shape")) {
    call.refuse("attribute 'kernel_shape' is not given");
  }
  if (kernel.empty()) kernel = positive(call, "kernel_shape", count);
  if (kernel.size() != count) {
    call.refuse("the kernel has " + std::to_string(kernel.size()) + " spatial axes; input 0 has " +
                std::to_string(count));
  }
  Window window{kernel, positive(call, "strides", count), positive(call, "dilations", count),
                call.integers("pads", std::vector<int64_t>(2 * count)),
                std::vector<int64_t>(count)};
  if (window.pads.size() != 2 * count) {
    call.refuse("attribute 'pads' has " + std::to_string(window.pads.size()) +
                " numbers; allowed: two for each spatial axis");
  }
  const std::string auto_pad = call.text("auto_pad", "NOTSET");
  if (auto_pad == "VALID") {
    window.pads.assign(2 * count, 0);
  } else if (auto_pad == "SAME_UPPER" || auto_pad == "SAME_LOWER") {
    pad_same(window, spatial, auto_pad == "SAME_UPPER");
  } else if (auto_pad != "NOTSET" && !auto_pad.empty()) {
    call.refuse("attribute 'auto_pad' is '" + auto_pad +
                "'; allowed: NOTSET, SAME_UPPER, SAME_LOWER and VALID");
  }
  if (call.flag("ceil_mode", false)) add_ceil_excess(window, spatial);
  return window;
}

}  // namespace bp::onnx

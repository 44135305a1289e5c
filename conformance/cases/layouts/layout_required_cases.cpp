// Cases for kernels that take layouts alone: the host converts tensors by strides for them, counts
// the calls, and converts nothing that lies in the layout already.
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "backplane/ops.h"
#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/layouts/layout_fixtures.hpp"
#include "conformance/required_layouts.hpp"

namespace bp::conformance {
namespace {

// More than one tile of 32 by 32 along both axes, with tails.
constexpr int64_t kRows = 41, kCols = 70;
constexpr auto kCount = static_cast<size_t>(kRows * kCols);
constexpr std::string_view kNames[] = {"y", "a", "b"};  // In the order of Sum::tensor().

struct Counts {
  uint64_t native = 0, laid_out = 0;
};

Counts counts_of_add(Context& t) {
  bp_dispatch_statistics seen{};
  seen.struct_size = sizeof(seen);
  seen.struct_type = BP_STRUCT_DISPATCH_STATISTICS;
  t.require_ok(bp_target_statistics(&t.target(), BP_OP_ADD, &seen), "bp_target_statistics");
  return {seen.native_count, seen.laid_out_count};
}

// One addition, y = a + b, whose tensors lie by strides: a and y in columns, b as one row that is
// repeated.
class Sum {
 public:
  explicit Sum(Context& t)
      : t_(t),
        stream_(make_stream(t)),
        a_(upload(kCount)),
        b_(upload(kCols)),
        y_(make_buffer(t, kCount * sizeof(float))),
        tensors_{tensor_of(y_, kColumns), tensor_of(a_, kColumns), tensor_of(b_, kRepeated)} {
    args_.struct_size = sizeof(args_);
    args_.y = tensors_.data();
    args_.a = &tensors_[1];
    args_.b = &tensors_[2];
    bp_kernel_choice choice{};
    const bp_status found =
        bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, BP_OP_ADD, &args_, &choice);
    bp_error_clear();
    if (found != BP_OK || !requires_layouts(*choice.kernel)) {
      t.not_supported("the device has no kernel of add.f32 that takes layouts alone");
    }
    kernel_ = choice.kernel;
  }

  const bp_kernel& kernel() const { return *kernel_; }
  bp_stream* stream() const { return stream_.get(); }
  bp_add_args& args() { return args_; }
  const bp_tensor& tensor(size_t index) const { return tensors_[index]; }

  bp_status launch() { return bp_op_launch(&t_.target(), stream_.get(), 0, BP_OP_ADD, &args_); }

  // Requires that y has the sums, and clears it.
  void expect_right(const std::string& when) {
    finish(t_, stream_.get());
    const bp_buffer_ref all = range(y_, 0, kCount * sizeof(float));
    const std::vector<uint8_t> bytes = read(t_, stream_.get(), all);
    for (size_t i = 0; i < kCount; ++i) {
      float sum = 0;
      std::memcpy(&sum, &bytes[i * sizeof(float)], sizeof(sum));
      const float expected = value(i) + value(i / kRows);
      if (sum == expected) continue;
      t_.fail({when + ": element " + std::to_string(i) + " is " + std::to_string(sum) +
                   ", and not " + std::to_string(expected),
               "values", "KERNEL-14"});
    }
    write(t_, stream_.get(), all, std::vector<uint8_t>(kCount * sizeof(float), 0xFF));
  }

 private:
  static constexpr int64_t kShape[2] = {kRows, kCols};
  static constexpr int64_t kColumns[2] = {1, kRows}, kRepeated[2] = {0, 1};

  static float value(size_t i) { return static_cast<float>(i % 251); }

  static bp_tensor tensor_of(const OwnedBuffer& buffer, const int64_t (&strides)[2]) {
    bp_tensor tensor{};
    tensor.buffer = buffer.get();
    tensor.shape = kShape;
    tensor.strides = strides;
    tensor.ndim = 2;
    tensor.dtype = BP_F32;
    return tensor;
  }

  OwnedBuffer upload(size_t count) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = value(i);
    std::vector<uint8_t> bytes(count * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    OwnedBuffer buffer = make_buffer(t_, bytes.size());
    write(t_, stream_.get(), range(buffer, 0, bytes.size()), bytes);
    return buffer;
  }

  Context& t_;
  const OwnedStream stream_;
  const OwnedBuffer a_, b_, y_;
  std::array<bp_tensor, 3> tensors_;
  bp_add_args args_{};
  const bp_kernel* kernel_ = nullptr;
};

void strides_are_converted_and_counted(Context& t) {
  Sum sum(t);
  const Counts before = counts_of_add(t);
  t.require_ok(sum.launch(), "a launch by strides");
  sum.expect_right("a launch by strides");
  bp_prepared* prepared = nullptr;
  t.require_ok(
      bp_op_prepare(&t.target(), sum.stream(), 0, BP_OP_ADD, &sum.args(), nullptr, 0, &prepared),
      "bp_op_prepare by strides");
  const bp_status launched = bp_prepared_launch(prepared, sum.stream(), &sum.args());
  t.expect_eq(bp_prepared_release(prepared), BP_OK, "bp_prepared_release");
  t.require_ok(launched, "a prepared launch by strides");
  sum.expect_right("a prepared launch by strides");
  const Counts after = counts_of_add(t);
  t.expect_eq(after.native - before.native, uint64_t{2}, "the native calls");
  t.expect_eq(after.laid_out - before.laid_out, uint64_t{2}, "the calls with conversions");
}

// The results of two launches go on to each other in their layout.
void tensors_in_layouts_are_not_converted(Context& t) {
  Sum sum(t);
  const MemoryPlace place_in = memory_place(t, sum.stream());
  std::vector<OwnedLayout> layouts;
  for (uint32_t i = 0; i < 3; ++i) {
    layouts.push_back(
        preferred_layout(t, sum.kernel(), tensor_argument(BP_OP_ADD, kNames[i]), &sum.args()));
    t.require(layouts.back() != nullptr, "a kernel that takes layouts alone prefers one");
  }
  LaidTensor y(place_in, *layouts[0], BP_F32, {kRows, kCols}),
      a(place_in, *layouts[1], BP_F32, {kRows, kCols}),
      b(place_in, *layouts[2], BP_F32, {kRows, kCols});
  y.poison(Poison::kNan);
  convert(t, sum.stream(), a.view(), &sum.tensor(1));
  convert(t, sum.stream(), b.view(), &sum.tensor(2));
  const Counts before = counts_of_add(t);
  sum.args().y = y.view();
  sum.args().a = a.view();
  sum.args().b = b.view();
  t.require_ok(sum.launch(), "a launch in layouts");
  const Counts after = counts_of_add(t);
  t.expect_eq(after.laid_out - before.laid_out, uint64_t{0}, "the calls with conversions");
  convert(t, sum.stream(), &sum.tensor(0), y.view());
  sum.expect_right("a launch in layouts");
  // One tensor by strides is enough for a conversion, and the others stay as they are.
  sum.args().b = &sum.tensor(2);
  t.require_ok(sum.launch(), "a launch with one tensor by strides");
  t.expect_eq(counts_of_add(t).laid_out - after.laid_out, uint64_t{1},
              "the calls with conversions, after one tensor by strides");
  convert(t, sum.stream(), &sum.tensor(0), y.view());
  sum.expect_right("a launch with one tensor by strides");
}

}  // namespace

void add_required_layout_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "layout",
      {
          {"strides_are_converted_and_counted", {"KERNEL-14"}, strides_are_converted_and_counted},
          {"tensors_in_layouts_are_not_converted",
           {"KERNEL-14", "LAYOUT-2"},
           tensors_in_layouts_are_not_converted},
      });
}

}  // namespace bp::conformance

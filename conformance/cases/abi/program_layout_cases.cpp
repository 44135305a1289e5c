// Cases for values of programs that have a layout. The layouts are those that kernels of the device
// prefer and that have a description.
#include <cstring>
#include <string>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/ranged_fixtures.hpp"
#include "conformance/cases/layouts/layout_fixtures.hpp"

namespace bp::conformance {
namespace {

// The program y = x + x with an x in a layout of f32 that the device has, and memory for it.
class LaidOutSum {
 public:
  LaidOutSum(Context& t, const LayoutSite& site) : stream_(make_stream(t)) {
    for (const int64_t extent : site.shape) count_ *= static_cast<size_t>(extent);
    const uint32_t x = maker.add_value(BP_VALUE_INPUT, site.shape),
                   y = maker.add_value(BP_VALUE_OUTPUT, site.shape);
    maker.value(x).layout = site.layout->desc;
    maker.add_add(x, x, y);
    rows_ = *maker.whole(y);
    laid_ = {
        .shape = rows_.shape, .ndim = rows_.ndim, .dtype = BP_F32, .layout = site.layout.get()};
    write_x(t, site);
  }

  std::vector<bp_tensor> tensors() const { return {laid_, rows_}; }

  bp_status launch(Context& t, const OwnedExecutable& executable, std::vector<bp_tensor> frame) {
    const bp_compiler_ops& compiler = compiler_table(t);
    const bp_kernel* kernel = nullptr;
    t.require_ok(compiler.executable_kernel(compiler.self, executable.get(), &kernel),
                 "executable_kernel");
    const bp_program_args args{.struct_size = sizeof(args),
                               .flags = 0,
                               .tensors = frame.data(),
                               .tensor_count = frame.size()};
    uint64_t required = 0, preferred = 0;
    t.require_ok(kernel->workspace_size(kernel, t.target().device, 0, &args, &required, &preferred),
                 "workspace_size");
    bp_launch launch{.device = t.target().device, .stream = stream_.get()};
    if (required != 0) {
      workspace_.push_back(make_buffer(t, required));
      launch.workspace = range(workspace_.back(), 0, required);
    }
    const bp_status status = kernel->launch(kernel, &launch, &args);
    finish(t, stream_.get());
    return status;
  }

  bool is_right(Context& t) {
    const std::vector<uint8_t> bytes = read(t, stream_.get(), range(buffers_[0], 0, count_ * 4));
    for (size_t i = 0; i < count_; ++i) {
      float value = 0;
      std::memcpy(&value, &bytes[i * 4], 4);
      if (value != static_cast<float>(2 * (i % 7))) return false;
    }
    return true;
  }

  RangedMaker maker;

 private:
  // Writes 0, 1, ... 6, 0, ... by strides, and converts it to the layout.
  void write_x(Context& t, const LayoutSite& site) {
    std::vector<uint8_t> bytes(count_ * 4);
    for (size_t i = 0; i < count_; ++i) {
      const auto value = static_cast<float>(i % 7);
      std::memcpy(&bytes[i * 4], &value, 4);
    }
    buffers_.push_back(make_buffer(t, count_ * 4));
    buffers_.push_back(make_buffer(t, site.layout->physical_size_bytes));
    rows_.buffer = buffers_[0].get();
    laid_.buffer = buffers_[1].get();
    write(t, stream_.get(), range(buffers_[0], 0, count_ * 4), bytes);
    convert(t, stream_.get(), &laid_, &rows_);
    finish(t, stream_.get());
  }

  OwnedStream stream_;
  size_t count_ = 1;
  std::deque<OwnedBuffer> buffers_, workspace_;
  bp_tensor rows_{}, laid_{};
};

// Calls visit(site, sum, executable) for each layout of f32 in which the compiler takes x.
template <typename Visit>
void for_each_program(Context& t, Visit&& visit) {
  compiler_table(t);
  size_t count = 0;
  for (const LayoutSite& site : layout_sites(t)) {
    const bool is_tiled = site.layout->desc != nullptr && site.dtype == BP_F32 &&
                          site.layout->desc->kind == BP_LAYOUT_KIND_TILED;
    bool is_empty = false;
    for (const int64_t extent : site.shape) is_empty = is_empty || extent == 0;
    if (!is_tiled || is_empty) continue;
    LaidOutSum sum(t, site);
    const OwnedExecutable executable = compile_ranged(t, sum.maker);
    visit(site, sum, executable);
    ++count;
  }
  if (count == 0) t.not_supported("no kernel prefers tiles of f32 that have a description");
}

void programs_take_values_in_layouts(Context& t) {
  for_each_program(t, [&](const LayoutSite& site, LaidOutSum& sum, const OwnedExecutable& made) {
    t.require_ok(sum.launch(t, made, sum.tensors()), site_text(site) + ": launch");
    t.expect(sum.is_right(t), site_text(site) + ": the result");
  });
}

void other_layouts_are_refused(Context& t) {
  for_each_program(t, [&](const LayoutSite& site, LaidOutSum& sum, const OwnedExecutable& made) {
    std::vector<bp_tensor> frame = sum.tensors();
    frame[0].layout = nullptr;
    frame[0].strides = frame[1].strides;
    t.expect_refused(sum.launch(t, made, frame), BP_INVALID_ARGUMENT,
                     site_text(site) + ": strides in place of a layout");
    frame = sum.tensors();
    frame[1].layout = frame[0].layout;
    t.expect_refused(sum.launch(t, made, frame), BP_INVALID_ARGUMENT,
                     site_text(site) + ": a layout in place of strides");
    bp_layout_desc lying = *site.layout->desc;
    lying.dtype = BP_F64;
    sum.maker.value(0).layout = &lying;
    expect_not_compiled(t, sum.maker, BP_INVALID_ARGUMENT, "a description of another dtype");
    std::vector<int64_t> longer = site.shape;
    if (longer.empty()) return;
    longer.back() += site.layout->desc->block_shape[longer.size() - 1];
    lying = *site.layout->desc;
    lying.shape = longer.data();
    expect_not_compiled(t, sum.maker, BP_INVALID_ARGUMENT, "a description of another shape");
  });
}

}  // namespace

void add_program_layout_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "compiler",
      {
          {"programs_take_values_in_layouts", {"COMPILER-23"}, programs_take_values_in_layouts},
          {"other_layouts_are_refused", {"COMPILER-22"}, other_layouts_are_refused},
      });
}

}  // namespace bp::conformance

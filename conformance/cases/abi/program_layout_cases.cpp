// Cases for values of programs that have a layout. The layouts are those that kernels of the device
// prefer and that have a description.
#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "backplane/ops.h"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/ranged_fixtures.hpp"
#include "conformance/cases/layouts/layout_fixtures.hpp"

namespace bp::conformance {
namespace {

size_t count_of(const Shape& shape) { return static_cast<size_t>(element_count(shape)); }

// Returns the elements of the inputs: 0, 1, ... 6, 0, ...
float value_of(size_t i) { return static_cast<float>(i % 7); }

// Launches a program, and waits for its end.
bp_status launch_and_finish(Context& t, bp_stream* stream, const OwnedExecutable& executable,
                            const std::vector<bp_tensor>& frame) {
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
  bp_launch launch{.device = t.target().device, .stream = stream};
  OwnedBuffer workspace;
  if (required != 0) {
    workspace = make_buffer(t, required);
    launch.workspace = range(workspace, 0, required);
  }
  const bp_status status = kernel->launch(kernel, &launch, &args);
  finish(t, stream);
  return status;
}

// Device memory of f32 elements, by strides or in a layout.
struct Memory {
  OwnedBuffer buffer;
  bp_tensor tensor{};
};

Memory rows_of(Context& t, const bp_tensor& like) {
  Memory rows{make_buffer(t, count_of({like.shape, like.shape + like.ndim}) * sizeof(float)), like};
  rows.tensor.buffer = rows.buffer.get();
  return rows;
}

Memory laid_of(Context& t, const bp_tensor& like, const bp_layout& layout) {
  Memory laid{make_buffer(t, layout.physical_size_bytes), like};
  laid.tensor.buffer = laid.buffer.get();
  laid.tensor.strides = nullptr;
  laid.tensor.layout = &layout;
  return laid;
}

// Writes the elements of an input by strides into `rows`, and converts them into `laid`.
void write_input(Context& t, bp_stream* stream, const Memory& rows, const Memory& laid) {
  const bp_tensor& tensor = rows.tensor;
  const size_t count = count_of({tensor.shape, tensor.shape + tensor.ndim});
  std::vector<uint8_t> bytes(count * sizeof(float));
  for (size_t i = 0; i < count; ++i) {
    const float value = value_of(i);
    std::memcpy(&bytes[i * sizeof(float)], &value, sizeof(float));
  }
  write(t, stream, range(rows.buffer, 0, bytes.size()), bytes);
  convert(t, stream, &laid.tensor, &tensor);
  finish(t, stream);
}

// Returns whether each element by strides is expected(i).
bool has_elements(Context& t, bp_stream* stream, const Memory& rows,
                  const std::function<float(size_t)>& expected) {
  const bp_tensor& tensor = rows.tensor;
  const size_t count = count_of({tensor.shape, tensor.shape + tensor.ndim});
  const std::vector<uint8_t> bytes = read(t, stream, range(rows.buffer, 0, count * sizeof(float)));
  for (size_t i = 0; i < count; ++i) {
    float value = 0;
    std::memcpy(&value, &bytes[i * sizeof(float)], sizeof(float));
    if (value != expected(i)) return false;
  }
  return true;
}

// The program y = x + x with an x in a layout of f32 that the device has, and memory for it.
class LaidOutSum {
 public:
  LaidOutSum(Context& t, const LayoutSite& site) : stream_(make_stream(t)) {
    const uint32_t x = maker.add_value(BP_VALUE_INPUT, site.shape),
                   y = maker.add_value(BP_VALUE_OUTPUT, site.shape);
    maker.value(x).layout = site.layout->desc;
    maker.add_add(x, x, y);
    y_ = rows_of(t, *maker.whole(y));
    x_ = laid_of(t, y_.tensor, *site.layout);
    write_input(t, stream_.get(), y_, x_);
  }

  std::vector<bp_tensor> tensors() const { return {x_.tensor, y_.tensor}; }

  bp_status launch(Context& t, const OwnedExecutable& executable,
                   const std::vector<bp_tensor>& frame) {
    return launch_and_finish(t, stream_.get(), executable, frame);
  }

  bool is_right(Context& t) {
    return has_elements(t, stream_.get(), y_, [](size_t i) { return 2 * value_of(i); });
  }

  RangedMaker maker;

 private:
  OwnedStream stream_;
  Memory x_, y_;
};

// The program y = cat(x + x, x) along the last axis, whose values all lie in tiles.
class LaidOutChain {
 public:
  LaidOutChain(Context& t, const LayoutSite& site) : stream_(make_stream(t)), shape_(site.shape) {
    Shape wide = site.shape;
    wide.back() *= 2;
    bp_layout_desc desc = *site.layout->desc;
    desc.shape = wide.data();
    const bp_layout_ops& layouts = layout_table(t);
    const bp_layout* layout = nullptr;
    t.require_ok(layouts.from_desc(layouts.self, t.target().device, &desc, &layout), "from_desc");
    layout_of_y_ = OwnedLayout(layout, {&layouts});
    const uint32_t x = maker.add_value(BP_VALUE_INPUT, site.shape),
                   sum = maker.add_value(BP_VALUE_TEMPORARY, site.shape),
                   y = maker.add_value(BP_VALUE_OUTPUT, wide);
    maker.value(x).layout = maker.value(sum).layout = site.layout->desc;
    maker.value(y).layout = layout->desc;
    maker.add_add(x, x, sum);
    parts_[0] = maker.whole(sum);
    parts_[1] = maker.whole(x);
    maker.add_node(BP_OP_CAT,
                   bp_cat_args{.struct_size = 0,
                               .flags = 0,
                               .xs_count = 2,
                               .xs = parts_,
                               .y = maker.whole(y),
                               .axis = static_cast<int32_t>(wide.size()) - 1,
                               .reserved_0 = 0},
                   {sum, x, y});
    const Memory rows = rows_of(t, *maker.whole(x));
    x_ = laid_of(t, rows.tensor, *site.layout);
    write_input(t, stream_.get(), rows, x_);
    rows_of_y_ = rows_of(t, *maker.whole(y));
    y_ = laid_of(t, rows_of_y_.tensor, *layout);
  }

  bp_status launch(Context& t, const OwnedExecutable& executable) {
    const bp_status status =
        launch_and_finish(t, stream_.get(), executable, {x_.tensor, y_.tensor});
    if (status != BP_OK) return status;
    convert(t, stream_.get(), &rows_of_y_.tensor, &y_.tensor);
    finish(t, stream_.get());
    return BP_OK;
  }

  bool is_right(Context& t) {
    const auto cols = static_cast<size_t>(shape_.back());
    return has_elements(t, stream_.get(), rows_of_y_, [&](size_t i) {
      const size_t row = i / (2 * cols), col = i % (2 * cols);
      return col < cols ? 2 * value_of(row * cols + col) : value_of(row * cols + col - cols);
    });
  }

  RangedMaker maker;

 private:
  OwnedStream stream_;
  const Shape shape_;
  OwnedLayout layout_of_y_;
  const bp_tensor* parts_[2] = {};
  Memory x_, y_, rows_of_y_;
};

// Calls visit(site, program, executable) for each layout of f32 in which the compiler takes x. The
// program has a rank of at least `least_rank`.
template <typename LaidOut, typename Visit>
void for_each_program(Context& t, size_t least_rank, Visit&& visit) {
  compiler_table(t);
  size_t count = 0;
  for (const LayoutSite& site : layout_sites(t)) {
    const bool is_tiled = site.layout->desc != nullptr && site.dtype == BP_F32 &&
                          site.layout->desc->kind == BP_LAYOUT_KIND_TILED;
    if (!is_tiled || count_of(site.shape) == 0 || site.shape.size() < least_rank) continue;
    LaidOut program(t, site);
    const OwnedExecutable executable = compile_ranged(t, program.maker);
    visit(site, program, executable);
    ++count;
  }
  if (count == 0) t.not_supported("no kernel prefers tiles of f32 that have a description");
}

void programs_take_values_in_layouts(Context& t) {
  using Sum = LaidOutSum;
  for_each_program<Sum>(t, 0, [&](const LayoutSite& site, Sum& sum, const OwnedExecutable& made) {
    t.require_ok(sum.launch(t, made, sum.tensors()), site_text(site) + ": launch");
    t.expect(sum.is_right(t), site_text(site) + ": the result");
  });
}

void programs_keep_values_in_layouts(Context& t) {
  using Chain = LaidOutChain;
  for_each_program<Chain>(t, 1, [&](const LayoutSite& site, Chain& chain, const auto& made) {
    t.require_ok(chain.launch(t, made), site_text(site) + ": launch");
    t.expect(chain.is_right(t), site_text(site) + ": the result");
  });
}

void other_layouts_are_refused(Context& t) {
  using Sum = LaidOutSum;
  for_each_program<Sum>(t, 0, [&](const LayoutSite& site, Sum& sum, const OwnedExecutable& made) {
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
          {"programs_keep_values_in_layouts", {"COMPILER-23"}, programs_keep_values_in_layouts},
          {"other_layouts_are_refused", {"COMPILER-22"}, other_layouts_are_refused},
      });
}

}  // namespace bp::conformance

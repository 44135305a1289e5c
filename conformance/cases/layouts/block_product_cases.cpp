// Cases for api/include/backplane/layout.h: products whose weight lies in the blocks of files.
#include <algorithm>
#include <iterator>

#include "backplane/ops.h"
#include "conformance/cases/engine/op_call.hpp"
#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/layouts/block_fixtures.hpp"

namespace bp::conformance {
namespace {

using enum Layout;

// A product of `rows` of x with a weight. Blocks follow each other along the last axis of the
// weight, which is the depth in linear, (columns, depth), and the columns in matmul, (depth,
// columns).
struct BlockProduct {
  uint32_t op;
  const BlockFormat& format;
  Shape rows;  // The extents of x in front of the depth.
  int64_t cols, depth;
  bp_dtype x_dtype = BP_F32, y_dtype = BP_F32;
  Layout x_layout = kDense;
  uint32_t activation = BP_LINEAR_ACTIVATION_NONE;

  bool is_linear() const { return op == BP_OP_LINEAR; }
  int64_t row_count() const { return element_count(rows); }
  Shape weight_shape() const { return is_linear() ? Shape{cols, depth} : Shape{depth, cols}; }
  Shape shape_of(int64_t last) const {
    Shape shape = rows;
    shape.push_back(last);
    return shape;
  }
  // The place of a weight among the elements of all blocks.
  int64_t weight_index(int64_t col, int64_t k) const {
    return is_linear() ? col * depth + k : k * cols + col;
  }
  double bias(int64_t col) const { return is_linear() ? static_cast<double>(col % 7) : 0; }
};

std::string text_of(const BlockProduct& p) {
  return std::string(p.is_linear() ? "linear" : "matmul") + " of " +
         shape_text(p.shape_of(p.depth)) + " (" + bp_dtype_name(p.x_dtype) + ", " +
         layout_text(p.x_layout) + ") by " + std::string(p.format.name) + " of " +
         shape_text(p.weight_shape()) + " to " + bp_dtype_name(p.y_dtype);
}

// Returns random blocks whose f16 are 1, -1 and 0.5, so that their elements are multiples of 0.5.
std::vector<uint8_t> simple_blocks(Context& t, const BlockFormat& format, const Shape& shape) {
  std::vector<uint8_t> bytes = random_blocks(t, format, shape);
  for (size_t block = 0; block < bytes.size(); block += static_cast<size_t>(format.bytes)) {
    for (const int field : reference::half_fields(format)) {
      constexpr uint8_t kUpper[] = {0x3c, 0xbc, 0x38};
      uint8_t* const half = bytes.data() + block + field;
      half[1] = kUpper[half[0] % std::size(kUpper)];
      half[0] = 0;
    }
  }
  return bytes;
}

// Returns the results. The sums are multiples of 0.5 below 2^23, which f32 adds exactly in any
// order, and are rounded once.
std::vector<double> results_of(const BlockProduct& p, const std::vector<uint8_t>& blocks,
                               const std::vector<DoubleDouble>& x) {
  std::vector<double> weights, y;
  for (int64_t i = 0; i < p.cols * p.depth; ++i) {
    const uint8_t* const block = blocks.data() + i / p.format.elements * p.format.bytes;
    weights.push_back(p.format.element(block, static_cast<int>(i % p.format.elements)));
  }
  for (int64_t i = 0; i < p.row_count() * p.cols; ++i) {
    const int64_t row = i / p.cols, col = i % p.cols;
    double sum = p.bias(col);
    for (int64_t k = 0; k < p.depth; ++k) {
      sum += weights[static_cast<size_t>(p.weight_index(col, k))] *
             x[static_cast<size_t>(row * p.depth + k)].hi;
    }
    if (p.activation == BP_LINEAR_ACTIVATION_RELU) sum = std::max(sum, 0.0);
    y.push_back(round_to(p.y_dtype, DoubleDouble(sum)));
  }
  return y;
}

// The arguments of a call, and its frame.
struct BlockCall {
  BlockCall(Context& t, bp_stream* stream, const BlockProduct& p)
      : description(p.format, p.weight_shape()),
        layout(layout_of_desc(t, description.desc)),
        weight(memory_place(t, stream), *layout, BP_F32, description.shape),
        x(memory_place(t, stream), spec(p.x_dtype, p.shape_of(p.depth), p.x_layout)),
        bias(memory_place(t, stream), spec(p.y_dtype, {p.cols}, kDense)),
        y(memory_place(t, stream), spec(p.y_dtype, p.shape_of(p.cols), kDense)) {
    linear = {.struct_size = sizeof(linear),
              .x = x.view(),
              .weight = weight.view(),
              .bias = bias.view(),
              .y = y.view(),
              .activation = p.activation};
    matmul = {.struct_size = sizeof(matmul), .a = x.view(), .b = weight.view(), .y = y.view()};
    args = p.is_linear() ? static_cast<const void*>(&linear) : &matmul;
  }
  BlockCall(const BlockCall&) = delete;

  static GuardedSpec spec(bp_dtype dtype, const Shape& shape, Layout layout) {
    return {dtype, shape, place(layout, shape)};
  }

  const Description description;
  const OwnedLayout layout;
  LaidTensor weight;
  GuardedTensor x, bias, y;
  bp_linear_args linear{};
  bp_matmul_args matmul{};
  const void* args;
};

// Returns whether a kernel of the backend takes the call.
bool is_taken(Context& t, const BlockProduct& p, const BlockCall& call) {
  bp_kernel_choice choice{};
  const bp_status status =
      bp_kernel_find(&t.target(), 0, BP_KERNEL_NATIVE, p.op, call.args, &choice);
  if (status != BP_UNSUPPORTED) t.require_ok(status, "bp_kernel_find of " + text_of(p));
  bp_error_clear();
  return status == BP_OK;
}

void expect_results(Context& t, const BlockProduct& p, const GuardedTensor& y,
                    const std::vector<double>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    const double got = y.element(static_cast<int64_t>(i)).hi;
    if (got == want[i]) continue;
    t.fail({text_of(p) + ": element " + std::to_string(i) + " is " + std::to_string(got) +
                ", not " + std::to_string(want[i]),
            "values", "KERNEL-8"});
  }
  if (const auto damage = y.damage()) {
    t.fail({text_of(p) + ": " + damage_text("y", *damage), "canary", "KERNEL-9"});
  }
}

// Launches the product. Returns false if no kernel takes it.
bool multiply(Context& t, bp_stream* stream, const BlockProduct& p) {
  BlockCall call(t, stream, p);
  if (!is_taken(t, p, call)) return false;
  const std::vector<uint8_t> blocks = simple_blocks(t, p.format, p.weight_shape());
  write(t, stream, call.weight.ref(), blocks);
  std::vector<DoubleDouble> values, biases;
  const auto count = static_cast<uint64_t>(p.row_count() * p.depth);
  for (const uint8_t byte : random_bytes(t, count, 7)) values.emplace_back(byte % 5 - 2.0);
  for (int64_t i = 0; i < p.cols; ++i) biases.emplace_back(static_cast<double>(i % 7));
  call.x.set_elements(values);
  call.bias.set_elements(biases);
  call.y.poison_elements(Poison::kNan);
  for (GuardedTensor* each : {&call.x, &call.bias, &call.y}) each->upload();
  t.require_ok(bp_op_launch(&t.target(), stream, 0, p.op, call.args), text_of(p));
  finish(t, stream);
  call.y.download();
  expect_results(t, p, call.y, results_of(p, blocks, values));
  return true;
}

// Launches `p` with other dtypes of x and y, and with other strides of x. Returns how many calls a
// kernel took.
size_t multiply_variants(Context& t, bp_stream* stream, const BlockProduct& p) {
  size_t count = 0;
  for (const bp_dtype narrow : {BP_F16, BP_BF16}) {
    for (const bp_dtype y_dtype : {narrow, bp_dtype{BP_F32}}) {
      BlockProduct other = p;
      other.x_dtype = narrow;
      other.y_dtype = y_dtype;
      count += multiply(t, stream, other);
    }
  }
  for (const Layout layout : {kTransposed, kReversed}) {
    BlockProduct other = p;
    other.x_layout = layout;
    count += multiply(t, stream, other);
  }
  return count;
}

void finish_case(Context& t, const char* op, size_t count) {
  if (count == 0) {
    t.not_supported("no kernel of " + std::string(op) + " takes a weight in blocks");
  }
  t.metric("launches", static_cast<double>(count));
}

size_t multiply_linear(Context& t, bp_stream* stream, const BlockFormat& format) {
  t.progress("linear by " + std::string(format.name));
  size_t count = 0;
  for (const Shape& rows : {Shape{}, Shape{1}, Shape{3}, Shape{20}, Shape{2, 2}}) {
    count += multiply(t, stream, {BP_OP_LINEAR, format, rows, 5, 512});
  }
  return count;
}

BlockProduct few_rows_of_matmul(const BlockFormat& format) {
  return {BP_OP_MATMUL, format, {3}, std::max<int64_t>(96, format.elements), 37};
}

size_t multiply_matmul(Context& t, bp_stream* stream, const BlockFormat& format) {
  t.progress("matmul by " + std::string(format.name));
  size_t count = 0;
  for (const int64_t depth : {1, 37}) {
    for (const int64_t rows : {1, 3, 20}) {
      BlockProduct p = few_rows_of_matmul(format);
      p.rows = {rows};
      p.depth = depth;
      count += multiply(t, stream, p);
    }
  }
  return count;
}

void linear_takes_blocks(Context& t) {
  const OwnedStream stream = make_stream(t);
  const std::vector<const BlockFormat*> formats = formats_of(t);
  size_t count = 0;
  for (const BlockFormat* format : formats) count += multiply_linear(t, stream.get(), *format);
  // More than a million weights: a kernel may decode them in parts.
  count += multiply(t, stream.get(), {BP_OP_LINEAR, *formats.front(), {17}, 2100, 512});
  finish_case(t, "linear", count);
}

void matmul_takes_blocks(Context& t) {
  const OwnedStream stream = make_stream(t);
  const std::vector<const BlockFormat*> formats = formats_of(t);
  size_t count = multiply_matmul(t, stream.get(), *formats.front());
  count += multiply_matmul(t, stream.get(), *formats.back());
  finish_case(t, "matmul", count);
}

void matmul_takes_every_format(Context& t) {
  const OwnedStream stream = make_stream(t);
  size_t count = 0;
  for (const BlockFormat* format : formats_of(t)) {
    count += multiply_matmul(t, stream.get(), *format);
  }
  finish_case(t, "matmul", count);
}

void products_take_other_operands(Context& t) {
  const OwnedStream stream = make_stream(t);
  const BlockFormat& format = *formats_of(t).front();
  BlockProduct linear{BP_OP_LINEAR, format, {3}, 5, 512};
  size_t count = multiply_variants(t, stream.get(), few_rows_of_matmul(format));
  count += multiply_variants(t, stream.get(), linear);
  linear.activation = BP_LINEAR_ACTIVATION_RELU;
  count += multiply(t, stream.get(), linear);
  finish_case(t, "linear or matmul", count);
}

}  // namespace

void add_block_product_cases(std::vector<Case>& cases) {
  const std::vector<std::string> tags = {"KERNEL-8", "KERNEL-9"};
  add_api_cases(cases, "layout",
                {{"linear_takes_blocks", tags, linear_takes_blocks},
                 {"matmul_takes_blocks", tags, matmul_takes_blocks}});
  const size_t smoke_count = cases.size();
  add_api_cases(cases, "layout",
                {{"matmul_takes_every_format", tags, matmul_takes_every_format},
                 {"products_by_blocks_take_other_operands", tags, products_take_other_operands}});
  // A backend may compile a kernel for each format and dtype.
  for (size_t i = smoke_count; i < cases.size(); ++i) cases[i].tier = Tier::kQuick;
}

}  // namespace bp::conformance

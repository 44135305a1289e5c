// The products with a quantised weight, and conversions. The bytes of a case are those of the
// codes, the scales, the zero points and the floats.
#include <array>
#include <memory>
#include <string>
#include <utility>

#include "runtime/bench/peers/backplane/prepared_op.hpp"
#include "runtime/bench/peers/backplane/suite.hpp"

namespace bp::bench {
namespace {

// How a factor is stored: its codes, the elements that share a scale, and whether there are zero
// points. Factors of floats have no block.
struct Stored {
  bp_dtype dtype;
  int64_t block = 0;
  bool has_zero = false;
};

// A tensor of codes as frames name it. The runtime has no tensors of less than a byte, so the codes
// lie in a tensor of bytes.
struct Codes {
  Codes() = default;
  Codes(const Tensor& its_memory, bp_dtype dtype) : memory(its_memory), tensor(*memory.get()) {
    const int64_t per_byte = 8 / bp_dtype_bits(dtype);
    extents = std::make_shared<std::array<int64_t, 4>>(
        std::array{tensor.shape[0], tensor.shape[1] * per_byte, tensor.strides[0] * per_byte,
                   tensor.strides[1]});
    tensor.dtype = dtype;
    tensor.shape = extents->data();
    tensor.strides = extents->data() + 2;
  }
  Tensor memory;
  std::shared_ptr<std::array<int64_t, 4>> extents;  // Copies share what `tensor` points to.
  bp_tensor tensor{};
};

struct Factor {
  Codes codes, zero;
  Tensor scale;
};

void quantize_into(const Codes& codes, const Tensor& x, const Tensor& scale) {
  const bp_quantize_args args{.x = x.get(), .scale = scale.get(), .y = &codes.tensor};
  ready(BP_OP_QUANTIZE, args, {x, scale, x}, false).run();
}

// Quantises numbers between -0.5 and 1.5.
Factor factor(const Shape& shape, int64_t s, const Stored& stored) {
  Factor made;
  if (stored.block == 0) {
    made.codes = Codes(input(shape, s, stored.dtype), BP_I8);
    made.codes.tensor.dtype = stored.dtype;
    return made;
  }
  const int64_t per_byte = 8 / bp_dtype_bits(stored.dtype);
  const Shape blocks = {shape[0], shape[1] / stored.block};
  const double largest = stored.dtype == BP_I8 ? 127 : stored.dtype == BP_F8E4M3FN ? 448 : 7;
  made.codes = Codes(zeros({shape[0], shape[1] / per_byte}, BP_U8), stored.dtype);
  made.scale = full(blocks, kLargestInput / largest, BP_F32);
  quantize_into(made.codes, input(shape, s), made.scale);
  if (stored.has_zero) {
    made.zero = Codes(zeros({blocks[0], blocks[1] / per_byte}, BP_U8), stored.dtype);
  }
  return made;
}

double bytes_of(const Shape& shape, const Stored& stored) {
  const double elements = static_cast<double>(count(shape));
  const double bits = bp_dtype_bits(stored.dtype);
  const double blocks = stored.block == 0 ? 0 : elements / static_cast<double>(stored.block);
  return elements * bits / 8 + blocks * (4 + (stored.has_zero ? bits / 8 : 0));
}

// The tensors of a case.
struct Product {
  Factor a, b;
  Tensor y;
};

void add(std::vector<Case>& cases, const std::string& name, const Shape& shape, const Stored& a,
         const Stored& b, bool is_b_constant = false) {
  const Shape a_shape = {shape[0], shape[1]}, b_shape = {shape[2], shape[1]};
  const auto y = static_cast<double>(shape[0] * shape[2]);
  cases.push_back({name, bytes_of(a_shape, a) + bytes_of(b_shape, b) + 4 * y,
                   2 * y * static_cast<double>(shape[1]), [=] {
                     const Product t = {factor(a_shape, 0, a), factor(b_shape, 1, b),
                                        zeros({shape[0], shape[2]}, BP_F32)};
                     auto tensors = std::make_shared<const Product>(t);
                     bp_matmul_scaled_args args{.a = &tensors->a.codes.tensor,
                                                .b = &tensors->b.codes.tensor,
                                                .b_scale = t.b.scale.get(),
                                                .y = t.y.get()};
                     if (a.block != 0) args.a_scale = t.a.scale.get();
                     if (b.has_zero) args.b_zero = &tensors->b.zero.tensor;
                     Ready made = ready(BP_OP_MATMUL_SCALED, args, {t.y}, is_b_constant);
                     return Ready{[tensors, run = made.run] { run(); }, made.mean_abs};
                   }});
}

// Adds quantize, or dequantize, of 4096x1024 f32.
void add_conversion(std::vector<Case>& cases, const std::string& name, const Stored& stored,
                    bool is_quantize) {
  const Shape shape = {4096, 1024};
  const double elements = static_cast<double>(count(shape));
  cases.push_back({name, bytes_of(shape, stored) + 4 * elements, 2 * elements, [=] {
                     auto made = std::make_shared<const Factor>(factor(shape, 0, stored));
                     const Tensor x = input(shape);
                     const bp_quantize_args to{
                         .x = x.get(), .scale = made->scale.get(), .y = &made->codes.tensor};
                     const bp_dequantize_args from{
                         .x = &made->codes.tensor, .scale = made->scale.get(), .y = x.get()};
                     const Ready op = is_quantize ? ready(BP_OP_QUANTIZE, to, {x}, 0)
                                                  : ready(BP_OP_DEQUANTIZE, from, {x}, 0);
                     return Ready{[made, run = op.run] { run(); }, op.mean_abs};
                   }});
}

// A weight (columns, depth) of f32 in the blocks of a format.
class BlockWeight {
 public:
  BlockWeight(const char* format, Shape shape, const Tensor& weight)
      : shape_(std::move(shape)), target_(weight.device().target()) {
    const bp_layout_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_LAYOUT_DESC,
                              .shape = shape_.data(),
                              .ndim = static_cast<uint32_t>(shape_.size()),
                              .kind = BP_LAYOUT_KIND_QUANTIZED,
                              .dtype = BP_F32,
                              .format_name = format};
    check(table().from_desc(table().self, target_.device, &desc, &layout_));
    memory_ = zeros({static_cast<int64_t>(layout_->physical_size_bytes)}, BP_U8);
    tensor_ = *weight.get();
    tensor_.buffer = memory_.get()->buffer;
    tensor_.byte_offset = memory_.get()->byte_offset;
    tensor_.shape = shape_.data();
    tensor_.layout = layout_;
    check(table().convert(table().self, target_.default_stream, &tensor_, weight.get()));
    weight.device().synchronize();
  }
  ~BlockWeight() { static_cast<void>(table().release(table().self, layout_)); }
  BlockWeight(const BlockWeight&) = delete;

  const bp_tensor* get() const { return &tensor_; }
  static double bytes(double elements, bool has_four_bits) {
    return elements / 32 * (has_four_bits ? 18 : 34);
  }

 private:
  const bp_layout_ops& table() const { return *target_.layouts; }

  const Shape shape_;
  const bp_target& target_;
  const bp_layout* layout_ = nullptr;
  Tensor memory_;
  bp_tensor tensor_{};
};

void add_blocks(std::vector<Case>& cases, const std::string& format, const Shape& shape) {
  const Shape x_shape = {shape[0], shape[1]}, w_shape = {shape[2], shape[1]};
  const auto x_count = static_cast<double>(count(x_shape)), w = static_cast<double>(count(w_shape));
  const auto y_count = static_cast<double>(shape[0] * shape[2]);
  const double bytes = 4 * (x_count + y_count) + BlockWeight::bytes(w, format == "q4_0");
  cases.push_back({"linear f32 by " + format + " " + text_of(shape), bytes,
                   2 * y_count * static_cast<double>(shape[1]), [=] {
                     auto weight = std::make_shared<const BlockWeight>(("ggml." + format).c_str(),
                                                                       w_shape, input(w_shape, 1));
                     const Tensor x = input(x_shape), y = zeros({shape[0], shape[2]}, BP_F32);
                     const bp_linear_args args{.x = x.get(),
                                               .weight = weight->get(),
                                               .y = y.get(),
                                               .activation = BP_LINEAR_ACTIVATION_NONE};
                     Ready made = ready(BP_OP_LINEAR, args, {x, y}, false);
                     return Ready{[weight, run = made.run] { run(); }, made.mean_abs};
                   }});
}

// The products that peers.py --quantized measures beside oneDNN and ggml.
void add_rows(std::vector<Case>& cases, int64_t rows) {
  constexpr Stored kF32 = {BP_F32}, kI8Rows = {BP_I8, 4096}, kI8Groups = {BP_I8, 32};
  constexpr Stored kI4Groups = {BP_I4, 32}, kI4GroupsWithZeros = {BP_I4, 32, true};
  const Shape shape = {rows, 4096, 4096};
  const std::string text = " " + text_of(shape), groups = text + ", groups of 32";
  add_blocks(cases, "q4_0", shape);
  add_blocks(cases, "q8_0", shape);
  add(cases, "matmul_scaled f32 by i4" + groups, shape, kF32, kI4Groups);
  add(cases, "matmul_scaled f32 by i4" + groups + " with zeros", shape, kF32, kI4GroupsWithZeros);
  add(cases, "matmul_scaled i8 by i4" + groups, shape, kI8Rows, kI4Groups);
  add(cases, "matmul_scaled f32 by i8" + groups, shape, kF32, kI8Groups);
  add(cases, "matmul_scaled i8 by i8" + groups, shape, kI8Rows, kI8Groups);
  add(cases, "matmul_scaled i8" + text + ", per channel", shape, kI8Rows, kI8Rows);
  add(cases, "matmul_scaled i8" + text + ", per channel, b constant", shape, kI8Rows, kI8Rows,
      true);
}

}  // namespace

void add_quantized_cases(std::vector<Case>& cases) {
  constexpr Stored kI8Rows = {BP_I8, 1024}, kLongI8Rows = {BP_I8, 4096};
  constexpr Stored kI4Groups = {BP_I4, 32}, kI4GroupsWithZeros = {BP_I4, 32, true};
  const Shape cube = {1024, 1024, 1024}, decode = {1, 4096, 4096};
  add_conversion(cases, "quantize f32 to i4 4096x1024, groups of 32", kI4Groups, true);
  add_conversion(cases, "dequantize i4 to f32 4096x1024, groups of 32", kI4Groups, false);
  add(cases, "matmul_scaled i8 1024^3, per channel", cube, kI8Rows, kI8Rows);
  add(cases, "matmul_scaled i8 1024^3, per channel, b constant", cube, kI8Rows, kI8Rows, true);
  add(cases, "matmul_scaled i8 by i4 1024^3, groups of 32", cube, kI8Rows, kI4Groups);
  for (const int64_t rows : kQuantizedRows) add_rows(cases, rows);
  constexpr Stored kF8Rows = {BP_F8E4M3FN, 4096};
  const Shape some_rows = {64, 4096, 4096};
  add(cases, "matmul_scaled f32 by e4m3 1x4096x4096, per channel", decode, {BP_F32}, kF8Rows);
  add(cases, "matmul_scaled bf16 by e4m3 1x4096x4096, per channel", decode, {BP_BF16}, kF8Rows);
  add(cases, "matmul_scaled bf16 by i4 1x4096x4096, groups of 32", decode, {BP_BF16}, kI4Groups);
  add(cases, "matmul_scaled bf16 by i4 1x4096x4096, groups of 32 with zeros", decode, {BP_BF16},
      kI4GroupsWithZeros);
  add(cases, "matmul_scaled f32 by e4m3 64x4096x4096, per channel", some_rows, {BP_F32}, kF8Rows);
  add(cases, "matmul_scaled f32 by i4 64x4096x4096, groups of 32 with zeros", some_rows, {BP_F32},
      kI4GroupsWithZeros);
  add(cases, "matmul_scaled bf16 by i4 64x4096x4096, groups of 32 with zeros", some_rows, {BP_BF16},
      kI4GroupsWithZeros);
  add(cases, "matmul_scaled bf16 by i8 1x4096x4096, per channel", decode, {BP_BF16}, kLongI8Rows);
}

}  // namespace bp::bench

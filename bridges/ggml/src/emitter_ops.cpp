// The ops that many nodes need, as functions of an Emitter.
#include <cstring>

#include "emitter.h"
#include "log.h"

namespace bpg {
namespace {

// The forms that many ops share.
struct UnaryArgs {
  uint32_t struct_size, flags;
  const bp_tensor *x, *y;
};
using BinaryArgs = bp_add_args;
static_assert(sizeof(UnaryArgs) == sizeof(bp_exp_args));
static_assert(sizeof(BinaryArgs) == sizeof(bp_maximum_args));
static_assert(sizeof(BinaryArgs) == sizeof(bp_gt_args));

bp_scalar scalar_of(double value) {
  bp_scalar scalar{};
  scalar.dtype = BP_F64;
  std::memcpy(&scalar.bits, &value, sizeof(value));
  return scalar;
}

bool is_float(bp_dtype dtype) {
  return dtype == BP_F32 || dtype == BP_F16 || dtype == BP_BF16 || dtype == BP_F64;
}

}  // namespace

View Emitter::cast(const View& x, bp_dtype dtype) {
  if (x.dtype == dtype && x.layout == nullptr) return x;
  View y = temporary(dtype, x.dims());
  copy(x, y);
  return y;
}

View Emitter::contiguous(const View& x) {
  if (x.is_contiguous()) return x;
  View y = temporary(x.dtype, x.dims());
  copy(x, y);
  return y;
}

View Emitter::reshape(const View& x, const Shape& shape) {
  View y;
  if (reshape_view(x, shape, y)) return y;
  reshape_view(contiguous(x), shape, y);
  return y;
}

View Emitter::decoded(const View& x) {
  if (x.layout == nullptr) return x;
  View y = temporary(BP_F32, x.dims());
  convert(x, y);
  return y;
}

void Emitter::copy(const View& x, const View& y) {
  if (x.layout != nullptr || y.layout != nullptr) return convert(x, y);
  UnaryArgs args{};
  args.x = arg(x);
  args.y = arg(y);
  launch(BP_OP_COPY, args);
}

void Emitter::fill(const View& y, double value) {
  bp_fill_args args{};
  args.y = arg(y);
  args.value_scalar = scalar_of(value);
  launch(BP_OP_FILL, args);
}

void Emitter::convert(const View& x, const View& y) {
  if (x.dtype != y.dtype) throw Refusal("a conversion between layouts does not change the dtype");
  if (is_dry_) return;
  const bp_layout_ops* const ops = device_.target->layouts;
  check(ops->convert(ops->self, stream_, arg(y), arg(x)), "layout.convert");
}

void Emitter::unary(uint32_t op, const View& x, const View& y) {
  UnaryArgs args{};
  args.x = arg(x);
  args.y = arg(y);
  launch(op, args);
}

View Emitter::unary(uint32_t op, const View& x) {
  const View y = temporary(x.dtype, x.dims());
  unary(op, x, y);
  return y;
}

void Emitter::binary(uint32_t op, const View& a, const View& b, const View& y) {
  BinaryArgs args{};
  args.a = arg(a);
  args.b = arg(b);
  args.y = arg(y);
  launch(op, args);
}

View Emitter::binary(uint32_t op, const View& a, const View& b) {
  const View y = temporary(a.dtype, a.dims());
  binary(op, a, b, y);
  return y;
}

void Emitter::binary(uint32_t op, const View& a, double b, const View& y) {
  BinaryArgs args{};
  args.a = arg(a);
  args.b_scalar = scalar_of(b);
  if (!is_float(a.dtype)) {
    args.b_scalar.dtype = BP_I64;
    const auto whole = static_cast<int64_t>(b);
    std::memcpy(&args.b_scalar.bits, &whole, sizeof(whole));
  }
  args.y = arg(y);
  launch(op, args);
}

View Emitter::binary(uint32_t op, const View& a, double b) {
  const View y = temporary(a.dtype, a.dims());
  binary(op, a, b, y);
  return y;
}

View Emitter::compare(uint32_t op, const View& a, double b) {
  const View y = temporary(BP_BOOL, a.dims());
  binary(op, a, b, y);
  return y;
}

View Emitter::compare(uint32_t op, const View& a, const View& b) {
  const View y = temporary(BP_BOOL, a.dims());
  binary(op, a, b, y);
  return y;
}

View Emitter::where(const View& condition, const View& a, const View& b) {
  const View y = temporary(a.dtype, a.dims());
  bp_where_args args{};
  args.condition = arg(condition);
  args.a = arg(a);
  args.b = arg(b);
  args.y = arg(y);
  launch(BP_OP_WHERE, args);
  return y;
}

void Emitter::sum(const View& x, const Shape& axes, const View& y, bool keeps_axes) {
  bp_sum_args args{};
  args.x = arg(x);
  args.y = arg(y);
  args.axes_count = axes.size();
  args.axes = axes.data();
  args.keepdims = keeps_axes;
  launch(BP_OP_SUM, args);
}

View Emitter::sum(const View& x, const Shape& axes) {
  Shape shape = x.dims();
  for (const int64_t axis : axes) shape[axis] = 1;
  const View y = temporary(x.dtype, shape);
  sum(x, axes, y, true);
  return y;
}

View Emitter::cat(const std::vector<View>& parts, int axis) {
  Shape shape = parts[0].dims();
  shape[axis] = 0;
  std::vector<const bp_tensor*> list;
  for (const View& part : parts) {
    shape[axis] += part.shape[axis];
    list.push_back(arg(part));
  }
  const View y = temporary(parts[0].dtype, shape);
  bp_cat_args args{};
  args.xs_count = list.size();
  args.xs = list.data();
  args.y = arg(y);
  args.axis = axis;
  launch(BP_OP_CAT, args);
  return y;
}

}  // namespace bpg

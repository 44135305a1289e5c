// Operators that take elements from, or put them to, places that indices name.
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

Values gather_slices(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t axis = call.axis(call.integer("axis", 0), x.ndim());
  const Tensor indices = wrap_indices(call.input(1), x.shape(axis));
  Ints shape = x.shape().to_vector();
  shape.erase(shape.begin() + axis);
  shape.insert(shape.begin() + axis, indices.shape().begin(), indices.shape().end());
  return {index_select(x, indices.reshape({indices.numel()}), axis).reshape(shape)};
}

// Indices may name fewer elements of the other axes than there are.
Tensor match_extents(const Tensor& x, const Tensor& indices, int64_t axis) {
  Tensor part = x;
  for (int64_t i = 0; i < x.ndim(); ++i) {
    if (i != axis && indices.shape(i) < x.shape(i)) part = part.narrow(i, 0, indices.shape(i));
  }
  return part;
}

Values gather_elements(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t axis = call.axis(call.integer("axis", 0), x.ndim());
  const Tensor indices = wrap_indices(call.input(1), x.shape(axis));
  return {gather(match_extents(x, indices, axis), indices, axis)};
}

// ---- Indices of several axes -------------------------------------------------------------------

// Indices (..., k) into the first axes of a tensor, seen as rows of a matrix.
struct Rows {
  Tensor places;  // One number per index: which row it names.
  int64_t row_count = 1, row_size = 1;
};

// The axes from `first` on are indexed, those before it are batches.
Rows rows_of(const Call& call, const Tensor& x, const Tensor& indices, int64_t first) {
  if (indices.ndim() < 1 || first + indices.shape(-1) > x.ndim()) {
    call.refuse("indices of the shape " + bp::to_string(indices.shape()) +
                " have more numbers each than the input " + bp::to_string(x.shape()) + " has axes");
  }
  const int64_t depth = indices.shape(-1);
  Ints shape(indices.shape().begin(), indices.shape().end() - 1);
  Rows rows{zeros(shape, BP_I64, x.device())};
  for (int64_t i = 0; i < first + depth; ++i) {
    Tensor place;
    if (i < first) {
      place = align_axis(count_up(x.shape(i), x.device()), i, static_cast<int64_t>(shape.size()));
    } else {
      place = wrap_indices(indices.select(-1, i - first), x.shape(i));
    }
    rows.places = rows.places * x.shape(i) + place;
    rows.row_count *= x.shape(i);
  }
  for (int64_t i = first + depth; i < x.ndim(); ++i) rows.row_size *= x.shape(i);
  return rows;
}

Ints with_tail(const Tensor& places, const Tensor& x, int64_t first) {
  Ints shape = places.shape().to_vector();
  shape.insert(shape.end(), x.shape().begin() + first, x.shape().end());
  return shape;
}

Values gather_nd(const Call& call) {
  const Tensor x = call.input(0);
  const Tensor indices = call.input(1);
  const int64_t batches = call.integer("batch_dims", 0);
  if (batches < 0 || batches >= indices.ndim() || batches >= x.ndim()) {
    call.refuse("attribute 'batch_dims' is " + std::to_string(batches) +
                "; allowed: 0 to less than the number of axes of both inputs");
  }
  const Rows rows = rows_of(call, x, indices, batches);
  const Tensor matrix = x.reshape({rows.row_count, rows.row_size});
  const Tensor taken = index_select(matrix, rows.places.reshape({rows.places.numel()}), 0);
  return {taken.reshape(with_tail(rows.places, x, batches + indices.shape(-1)))};
}

// ---- Scatter -----------------------------------------------------------------------------------

Tensor combine(const Call& call, const std::string& reduction, const Tensor& old,
               const Tensor& update) {
  if (reduction == "mul") return mul(old, update);
  if (reduction == "max") return maximum(old, update);
  if (reduction == "min") return minimum(old, update);
  call.refuse("attribute 'reduction' is '" + reduction + "'; allowed: none, add, mul, max and min");
}

// Along the axis an index may repeat, so one slice follows the other.
Tensor scatter_in_turn(const Call& call, const std::string& reduction, Tensor x,
                       const Tensor& indices, const Tensor& updates, int64_t axis) {
  for (int64_t i = 0; i < indices.shape(axis); ++i) {
    const Tensor places = indices.narrow(axis, i, 1).contiguous();
    const Tensor old = gather(match_extents(x, places, axis), places, axis);
    const Tensor value = combine(call, reduction, old, updates.narrow(axis, i, 1));
    x = scatter(x, places, value, axis);
  }
  return x;
}

Tensor scatter_with(const Call& call, const Tensor& x, const Tensor& indices, const Tensor& updates,
                    int64_t axis) {
  const std::string reduction = call.text("reduction", "none");
  if (reduction == "none") return scatter(x, indices, updates, axis);
  const Tensor target = computable(x);
  const Tensor source = computable(updates);
  if (reduction == "add") {
    return converted(scatter_reduce(target, indices, source, axis), x.dtype());
  }
  return converted(scatter_in_turn(call, reduction, target, indices, source, axis), x.dtype());
}

Values scatter_elements(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t axis = call.axis(call.integer("axis", 0), x.ndim());
  const Tensor indices = wrap_indices(call.input(1), x.shape(axis));
  return {scatter_with(call, x, indices, call.input(2), axis)};
}

Values scatter_nd(const Call& call) {
  const Tensor x = call.input(0);
  const Rows rows = rows_of(call, x, call.input(1), 0);
  const int64_t count = rows.places.numel();
  const Tensor matrix = x.reshape({rows.row_count, rows.row_size});
  const Tensor updates = call.input(2).reshape({count, rows.row_size});
  const Tensor places = rows.places.reshape({count, 1}).expand({count, rows.row_size}).contiguous();
  return {scatter_with(call, matrix, places, updates, 0).reshape(x.shape())};
}

Values one_hot_values(const Call& call) {
  const Tensor indices = call.input(0).to(BP_I64);
  const double given_depth = call.number(1);
  if (!(given_depth >= 0 && given_depth <= 0x1p53)) {
    call.refuse("the depth is " + std::to_string(given_depth) + "; allowed: 0 to 2^53");
  }
  const auto depth = static_cast<int64_t>(given_depth);
  const Tensor values = call.input(2);
  const int64_t axis = call.axis(call.integer("axis", -1), indices.ndim() + 1);
  const Tensor is_on = one_hot(wrap_indices(indices, depth), depth, axis);
  return {where(is_on, values.select(0, 1), values.select(0, 0))};
}

constexpr OpRow kRows[] = {
    {"Gather", 1, gather_slices, "axis", OnnxRoute::kOp},
    {"GatherElements", 11, gather_elements, "axis", OnnxRoute::kOp},
    {"GatherND", 11, gather_nd, "batch_dims"},
    {"OneHot", 9, one_hot_values, "axis"},
    {"Scatter", 9, scatter_elements, "axis", OnnxRoute::kOp},
    {"ScatterElements", 11, scatter_elements, "axis reduction", OnnxRoute::kOp},
    {"ScatterND", 11, scatter_nd, "reduction"},
};

}  // namespace

std::span<const OpRow> gather_ops() { return kRows; }

}  // namespace bp::onnx

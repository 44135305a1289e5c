// Operators that move elements and know their places without looking at values.
#include <algorithm>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

Values transpose(const Call& call) {
  const Tensor x = call.input(0);
  Ints order = all_axes(x.ndim());
  std::ranges::reverse(order);
  order = call.integers("perm", order);
  if (static_cast<int64_t>(order.size()) != x.ndim()) {
    call.refuse("attribute 'perm' has " + std::to_string(order.size()) + " axes; input 0 has " +
                std::to_string(x.ndim()));
  }
  return {x.permute(call.axes(order, x.ndim()))};
}

Values concatenate(const Call& call) {
  const std::vector<Tensor> inputs = call.all_inputs();
  const int64_t given = call.opset() < 4 ? call.integer("axis", 1) : call.required_integer("axis");
  return {concat(inputs, call.axis(given, inputs[0].ndim()))};
}

// ---- Split -------------------------------------------------------------------------------------

Ints equal_parts(const Call& call, int64_t extent) {
  const auto count = call.integer("num_outputs", static_cast<int64_t>(call.output_count()));
  if (count < 1) call.refuse("the axis is split into " + std::to_string(count) + " parts");
  const int64_t part = (extent + count - 1) / count;
  if (part * count != extent && call.opset() < 18) {
    call.refuse("the extent " + std::to_string(extent) + " cannot be split into " +
                std::to_string(count) + " equal parts");
  }
  Ints parts(static_cast<size_t>(count), part);
  parts.back() = extent - part * (count - 1);
  return parts;
}

Values split(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t axis = call.axis(call.integer("axis", 0), x.ndim());
  Ints parts = call.attribute_or_input("split", 1, {});
  if (parts.empty()) parts = equal_parts(call, x.shape(axis));
  Values results;
  int64_t begin = 0;
  for (const int64_t part : parts) {
    if (part < 0 || part > x.shape(axis) - begin) {
      call.refuse("the parts " + bp::to_string(IntList(parts)) + " do not fill the extent " +
                  std::to_string(x.shape(axis)));
    }
    results.emplace_back(x.narrow(axis, begin, part));
    begin += part;
  }
  return results;
}

// ---- Slice -------------------------------------------------------------------------------------

struct Slice {
  Ints starts, ends, axes, steps;
};

// A place behind an end of the axis stands for that end.
Tensor slice_axis(const Call& call, const Tensor& x, int64_t axis, int64_t start, int64_t end,
                  int64_t step) {
  const int64_t extent = x.shape(axis);
  if (step == 0) call.refuse("the step of axis " + std::to_string(axis) + " is 0");
  const int64_t lowest = step > 0 ? 0 : -1;
  const int64_t highest = step > 0 ? extent : extent - 1;
  const auto clip = [&](int64_t i) {
    return std::clamp(i < 0 ? std::max(i, -extent - 1) + extent : i, lowest, highest);
  };
  start = clip(start);
  end = clip(end);
  step = std::clamp(step, -extent - 1, extent + 1);
  const int64_t distance = step > 0 ? end - start : start - end;
  const int64_t stride = std::abs(step);
  return take_steps(x, axis, start, step, distance <= 0 ? 0 : (distance - 1) / stride + 1);
}

Values sliced(const Call& call, Slice slice) {
  Tensor x = call.input(0);
  const size_t count = slice.starts.size();
  if (slice.axes.empty()) slice.axes = all_axes(static_cast<int64_t>(count));
  if (slice.steps.empty()) slice.steps.assign(count, 1);
  if (slice.ends.size() != count || slice.axes.size() != count || slice.steps.size() != count) {
    call.refuse("there are " + std::to_string(count) + " starts, " +
                std::to_string(slice.ends.size()) + " ends, " + std::to_string(slice.axes.size()) +
                " axes and " + std::to_string(slice.steps.size()) + " steps");
  }
  const Ints axes = call.axes(slice.axes, x.ndim());
  for (size_t i = 0; i < count; ++i) {
    x = slice_axis(call, x, axes[i], slice.starts[i], slice.ends[i], slice.steps[i]);
  }
  return {x};
}

Values slice_attributes(const Call& call) {
  return sliced(
      call,
      {call.integers("starts", {}), call.integers("ends", {}), call.integers("axes", {}), {}});
}

Values slice_inputs(const Call& call) {
  return sliced(call, {call.ints(1), call.ints(2), call.has(3) ? call.ints(3) : Ints(),
                       call.has(4) ? call.ints(4) : Ints()});
}

// ---- Tile --------------------------------------------------------------------------------------

Tensor repeat(const Tensor& x, int64_t axis, int64_t count) {
  if (count == 1) return x;
  if (x.ndim() == BP_MAX_RANK) {
    return concat(std::vector<Tensor>(static_cast<size_t>(count), x), axis);
  }
  Ints shape = x.shape().to_vector();
  shape.insert(shape.begin() + axis, count);
  const Tensor repeated = x.unsqueeze(axis).expand(shape);
  shape.erase(shape.begin() + axis);
  shape[static_cast<size_t>(axis)] *= count;
  return repeated.reshape(shape);
}

void check_repeats(const Call& call, int64_t count) {
  if (count < 0) call.refuse("an axis is repeated " + std::to_string(count) + " times");
}

Values tile_axis(const Call& call) {
  const Tensor x = call.input(0);
  check_repeats(call, call.integer(1));
  return {repeat(x, call.axis(call.integer(2), x.ndim()), call.integer(1))};
}

Values tile(const Call& call) {
  Tensor x = call.input(0);
  const Ints repeats = call.ints(1);
  if (static_cast<int64_t>(repeats.size()) != x.ndim()) {
    call.refuse("there are " + std::to_string(repeats.size()) + " repeats for " +
                std::to_string(x.ndim()) + " axes");
  }
  for (size_t i = 0; i < repeats.size(); ++i) {
    check_repeats(call, repeats[i]);
    x = repeat(x, static_cast<int64_t>(i), repeats[i]);
  }
  return {x};
}

// ---- Blocks ------------------------------------------------------------------------------------

int64_t block_size(const Call& call, const Tensor& x) {
  const int64_t size = call.required_integer("blocksize");
  if (size < 1) call.refuse("attribute 'blocksize' is " + std::to_string(size));
  if (x.ndim() != 4) {
    call.refuse("input 0 has " + std::to_string(x.ndim()) + " axes; allowed: 4");
  }
  return size;
}

Values depth_to_space(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t b = block_size(call, x);
  const int64_t n = x.shape(0), c = x.shape(1) / (b * b), h = x.shape(2), w = x.shape(3);
  const std::string mode = call.text("mode", "DCR");
  Tensor blocks;
  if (mode == "DCR") {
    blocks = x.reshape({n, b, b, c, h, w}).permute({0, 3, 4, 1, 5, 2});
  } else if (mode == "CRD") {
    blocks = x.reshape({n, c, b, b, h, w}).permute({0, 1, 4, 2, 5, 3});
  } else {
    call.refuse("attribute 'mode' is '" + mode + "'; allowed: DCR and CRD");
  }
  return {blocks.reshape({n, c, h * b, w * b})};
}

// The order of the new channels is that of the place in the block and the channel, or the other way
// round (CRD).
Values space_to_depth(const Call& call) {
  const Tensor x = call.input(0);
  const std::string mode = call.text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") {
    call.refuse("attribute 'mode' is '" + mode + "'; allowed: DCR and CRD");
  }
  const int64_t b = block_size(call, x);
  const int64_t n = x.shape(0), c = x.shape(1), h = x.shape(2) / b, w = x.shape(3) / b;
  const Tensor blocks = x.reshape({n, c, h, b, w, b});
  const Tensor moved =
      mode == "DCR" ? blocks.permute({0, 3, 5, 1, 2, 4}) : blocks.permute({0, 1, 3, 5, 2, 4});
  return {moved.reshape({n, c * b * b, h, w})};
}

// ---- Triangles and sequences -------------------------------------------------------------------

Values triangle(const Call& call) {
  const Tensor x = call.input(0);
  if (x.ndim() < 2) call.refuse("input 0 has fewer than 2 axes");
  const int64_t k = call.has(1) ? call.integer(1) : 0;
  const Tensor rows = count_up(x.shape(-2), x.device()).unsqueeze(1) + k;
  const Tensor columns = count_up(x.shape(-1), x.device());
  const bool is_upper = call.flag("upper", true);
  return {keep_where(is_upper ? ge(columns, rows) : le(columns, rows), x)};
}

// Element t of a sequence of length n comes from n - 1 - t; what lies behind it stays.
Values reverse_sequence(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t batch = call.axis(call.integer("batch_axis", 1), x.ndim());
  const int64_t time = call.axis(call.integer("time_axis", 0), x.ndim());
  if (batch == time) call.refuse("batch_axis and time_axis are the same axis");
  const Tensor lengths = align_axis(call.input(1).to(BP_I64), batch, x.ndim());
  const Tensor times = align_axis(count_up(x.shape(time), x.device()), time, x.ndim());
  const Tensor places = where(lt(times, lengths), lengths - 1 - times, times);
  return {gather(x, places.expand(x.shape()).contiguous(), time)};
}

constexpr OpRow kRows[] = {
    {"Concat", 1, concatenate, "axis", OnnxRoute::kOp},
    {"DepthToSpace", 1, depth_to_space, "blocksize mode", OnnxRoute::kView},
    {"ReverseSequence", 10, reverse_sequence, "batch_axis time_axis"},
    {"Slice", 1, slice_attributes, "axes ends starts", OnnxRoute::kView},
    {"Slice", 10, slice_inputs, "", OnnxRoute::kView},
    {"SpaceToDepth", 1, space_to_depth, "blocksize", OnnxRoute::kView},
    {"SpaceToDepth", 28, space_to_depth, "blocksize mode", OnnxRoute::kView},
    {"Split", 1, split, "axis split num_outputs", OnnxRoute::kView},
    {"Tile", 1, tile_axis, "", OnnxRoute::kView},
    {"Tile", 6, tile, "", OnnxRoute::kView},
    {"Transpose", 1, transpose, "perm", OnnxRoute::kView},
    {"Trilu", 14, triangle, "upper"},
};

}  // namespace

std::span<const OpRow> movement_ops() { return kRows; }

}  // namespace bp::onnx

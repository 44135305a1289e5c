#include "backplane/shell/moves.hpp"

#include <algorithm>
#include <utility>

#include "backplane/shell/shape.hpp"

namespace bp {
namespace {

// Collects the boxes of an op that works along one axis.
class Boxes {
 public:
  Boxes(const bp_tensor& y, const bp_tensor& x, int32_t axis)
      : y_(y), x_(x), axis_(static_cast<size_t>(axis)), is_empty_(element_count(y) == 0) {}

  // Adds `count` places of y, from `begin` on. The first one gets place `first` of x, and each
  // following one the place that is `step` further.
  void add(int64_t begin, int64_t count, int64_t first, int64_t step) {
    if (is_empty_ || count == 0) return;
    Move move = box(begin, count);
    std::copy_n(x_.strides, x_.ndim, move.from_strides);
    move.from_strides[axis_] *= step;
    move.from_offset = first * x_.strides[axis_];
    moves_.push_back(move);
  }

  // Adds places that get the value of the call.
  void add_value(int64_t begin, int64_t count) {
    if (is_empty_ || count == 0) return;
    moves_.push_back(box(begin, count));
    moves_.back().is_value = true;
  }

  std::vector<Move> take() { return std::move(moves_); }

 private:
  Move box(int64_t begin, int64_t count) const {
    Move move;
    move.ndim = y_.ndim;
    std::copy_n(y_.shape, y_.ndim, move.shape);
    std::copy_n(y_.strides, y_.ndim, move.to_strides);
    move.shape[axis_] = count;
    move.to_offset = begin * y_.strides[axis_];
    return move;
  }

  const bp_tensor &y_, &x_;
  const size_t axis_;
  const bool is_empty_;
  std::vector<Move> moves_;
};

// An axis of a box, with its strides in y and in x.
struct Axis {
  int64_t extent, to, from;
};

// Returns the box of these axes.
Move box_of(const std::vector<Axis>& axes) {
  Move move;
  for (const Axis& axis : axes) {
    move.shape[move.ndim] = axis.extent;
    move.to_strides[move.ndim] = axis.to;
    move.from_strides[move.ndim++] = axis.from;
  }
  return move;
}

}  // namespace

std::vector<Move> moves_of(const bp_flip_args& args) {
  Boxes boxes(*args.y, *args.x, args.axis);
  const int64_t extent = args.x->shape[args.axis];
  boxes.add(0, extent, extent - 1, -1);
  return boxes.take();
}

std::vector<Move> moves_of(const bp_roll_args& args) {
  Boxes boxes(*args.y, *args.x, args.axis);
  const int64_t extent = args.x->shape[args.axis], divisor = std::max<int64_t>(extent, 1);
  const int64_t shift = (args.shift % divisor + divisor) % divisor;
  boxes.add(0, shift, extent - shift, 1);
  boxes.add(shift, extent - shift, 0, 1);
  return boxes.take();
}

std::vector<Move> moves_of(const bp_pad_args& args) {
  Boxes boxes(*args.y, *args.x, args.axis);
  const int64_t extent = args.x->shape[args.axis], behind = args.before + extent;
  if (args.mode == BP_PAD_MODE_CONSTANT) {
    boxes.add_value(0, args.before);
    boxes.add(args.before, extent, 0, 1);
    boxes.add_value(behind, args.after);
    return boxes.take();
  }
  const bool is_reflected = args.mode == BP_PAD_MODE_REFLECT;
  const int64_t step = is_reflected ? -1 : 0;
  boxes.add(0, args.before, is_reflected ? args.before : 0, step);
  boxes.add(args.before, extent, 0, 1);
  boxes.add(behind, args.after, is_reflected ? extent - 2 : extent - 1, step);
  return boxes.take();
}

std::vector<Move> moves_of(const bp_tile_args& args) {
  const bp_tensor &x = *args.x, &y = *args.y;
  if (element_count(y) == 0) return {};
  std::vector<Axis> axes;
  for (uint32_t i = 0; i < x.ndim; ++i) {
    const bool is_tiled = i == static_cast<uint32_t>(args.axis);
    if (is_tiled && args.count > 1) axes.push_back({args.count, x.shape[i] * y.strides[i], 0});
    if (x.shape[i] > 1) axes.push_back({x.shape[i], y.strides[i], x.strides[i]});
  }
  if (axes.size() <= BP_MAX_RANK) return {box_of(axes)};
  // One axis is too many, so there is one box for each index of the shortest axis.
  const auto shortest = std::ranges::min_element(axes, {}, &Axis::extent);
  const Axis split = *shortest;
  axes.erase(shortest);
  std::vector<Move> moves(static_cast<size_t>(split.extent), box_of(axes));
  for (int64_t i = 0; i < split.extent; ++i) {
    Move& move = moves[static_cast<size_t>(i)];
    move.to_offset = i * split.to;
    move.from_offset = i * split.from;
  }
  return moves;
}

}  // namespace bp

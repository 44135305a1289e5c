// Elements at positions that tensors give: GridSample, the grids of AffineGrid, and DeformConv,
// which samples the places of its kernel. Col2Im adds the columns of such a kernel to an image. All
// take any number of spatial axes.
#include <algorithm>

#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"
#include "runtime/io/onnx/window.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;
using Positions = std::vector<Tensor>;  // Of each spatial axis: (N, places), in f32 or f64.

struct Field {
  Tensor planes;  // (N, C, elements)
  Ints extents;   // Of the spatial axes.
  std::string padding;
  bool aligns_corners;
};

bp_dtype wide_of(bp_dtype dtype) { return dtype == BP_F64 ? bp_dtype{BP_F64} : bp_dtype{BP_F32}; }

Ints spatial_of(const Tensor& x) { return {x.shape().begin() + 2, x.shape().end()}; }

int64_t count_of(const Ints& extents) {
  int64_t count = 1;
  for (const int64_t extent : extents) count *= extent;
  return count;
}

// Mirrors positions at both ends of an axis.
Tensor reflect(const Tensor& position, int64_t extent, bool aligns_corners) {
  const double low = aligns_corners ? 0 : -0.5;
  const double span =
      aligns_corners ? static_cast<double>(extent - 1) : static_cast<double>(extent);
  if (span == 0) return position * 0;
  const Tensor distance = remainder(position - low, 2 * span);
  return minimum(distance, 2 * span - distance) + low;
}

// Returns the elements (N, C, places) at whole positions.
Tensor fetch(const Field& field, Positions positions) {
  Tensor is_inside, places;
  for (size_t i = 0; i < positions.size(); ++i) {
    Tensor& position = positions[i];
    const auto last = static_cast<double>(field.extents[i] - 1);
    if (field.padding == "zeros") {
      const Tensor is_here = logical_and(ge(position, 0), le(position, last));
      is_inside = is_inside ? logical_and(is_inside, is_here) : is_here;
    } else if (field.padding == "reflection") {
      position = reflect(position, field.extents[i], field.aligns_corners);
    }
    const Tensor place = minimum(maximum(position, 0), last).to(BP_I64);
    places = places ? places * field.extents[i] + place : place;
  }
  const Ints shape{field.planes.shape(0), field.planes.shape(1), places.shape(1)};
  const Tensor taken = gather(field.planes, places.unsqueeze(1).expand(shape).contiguous(), 2);
  return is_inside ? keep_where(is_inside.unsqueeze(1).expand(shape), taken) : taken;
}

// The two weights of a line at fractions, or the four of a cubic.
std::vector<Tensor> weights_at(const Tensor& t, bool is_cubic) {
  if (!is_cubic) return {1 - t, t};
  const double a = -0.75;
  const auto near = [&](const Tensor& d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
  const auto far = [&](const Tensor& d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

// Sums up the elements around the positions, of which there are two or four for each axis.
Tensor blend(const Field& field, const Positions& positions, bool is_cubic) {
  const size_t taps = is_cubic ? 4 : 2;
  Positions firsts;
  std::vector<std::vector<Tensor>> weights;
  size_t combinations = 1;
  for (const Tensor& position : positions) {
    const Tensor below = floor(position);
    weights.push_back(weights_at(position - below, is_cubic));
    firsts.push_back(is_cubic ? below - 1 : below);
    combinations *= taps;
  }
  Tensor total;
  for (size_t combination = 0; combination < combinations; ++combination) {
    Positions places = firsts;
    Tensor weight;
    for (size_t i = 0, rest = combination; i < places.size(); ++i, rest /= taps) {
      const size_t tap = rest % taps;
      places[i] = places[i] + static_cast<double>(tap);
      weight = weight ? weight * weights[i][tap] : weights[i][tap];
    }
    const Tensor part = fetch(field, places) * weight.unsqueeze(1);
    total = total ? total + part : part;
  }
  return total;
}

// ---- GridSample --------------------------------------------------------------------------------

// Brings a coordinate from -1 to 1 to the elements of an axis, and into the axis where the padding
// asks for it.
Tensor position_in(const Call& call, const Field& field, const Tensor& coordinate, int64_t extent) {
  const Tensor given = coordinate + 1;
  const auto size = static_cast<double>(extent);
  Tensor position = field.aligns_corners ? given * ((size - 1) / 2) : (given * size - 1) / 2;
  if (field.padding == "border") return minimum(maximum(position, 0), size - 1);
  if (field.padding == "reflection") return reflect(position, extent, field.aligns_corners);
  if (field.padding == "zeros") return position;
  call.refuse("attribute 'padding_mode' is '" + field.padding +
              "'; allowed: zeros, border and reflection");
}

// The last axis of the grid has the coordinates, that of the last spatial axis first.
Values grid_sample(const Call& call) {
  const Tensor x = call.input(0), grid = call.input(1);
  const int64_t axes = x.ndim() - 2;
  if (axes < 1 || grid.ndim() != x.ndim() || grid.shape(-1) != axes ||
      grid.shape(0) != x.shape(0)) {
    call.refuse("input 0 is " + bp::to_string(x.shape()) + " and the grid " +
                bp::to_string(grid.shape()) + "; allowed: (N, C, spatial) and (N, places, " +
                std::to_string(axes) + ")");
  }
  const Ints extents = spatial_of(x);
  const Field field{x.reshape({x.shape(0), x.shape(1), count_of(extents)}), extents,
                    call.text("padding_mode", "zeros"), call.flag("align_corners", false)};
  const Ints places(grid.shape().begin() + 1, grid.shape().end() - 1);
  const Tensor flat = grid.to(wide_of(x.dtype())).reshape({x.shape(0), count_of(places), axes});
  Positions positions;
  for (int64_t i = 0; i < axes; ++i) {
    positions.push_back(
        position_in(call, field, flat.select(2, axes - 1 - i), extents[static_cast<size_t>(i)]));
  }
  const std::string mode = call.text("mode", call.opset() < 20 ? "bilinear" : "linear");
  Tensor y;
  if (mode == "nearest") {
    for (Tensor& position : positions) position = round(position);
    y = fetch(field, positions);
  } else if (mode == "bilinear" || mode == "linear") {
    y = blend(field, positions, false);
  } else if (mode == "bicubic" || mode == "cubic") {
    y = blend(field, positions, true);
  } else {
    call.refuse("attribute 'mode' is '" + mode + "'; allowed: nearest, linear and cubic");
  }
  Ints shape{x.shape(0), x.shape(1)};
  shape.insert(shape.end(), places.begin(), places.end());
  return {y.to(x.dtype()).reshape(shape)};
}

// ---- AffineGrid --------------------------------------------------------------------------------

// Returns the coordinates from -1 to 1 of the elements of an axis, or of its corners.
std::vector<double> coordinates(int64_t extent, bool aligns_corners) {
  const auto size = static_cast<double>(aligns_corners ? std::max<int64_t>(extent - 1, 1) : extent);
  std::vector<double> result;
  for (int64_t i = 0; i < extent; ++i) {
    result.push_back((2 * static_cast<double>(i) + (aligns_corners ? 0 : 1)) / size - 1);
  }
  return result;
}

// Each matrix is for coordinates, that of the last axis first, and a last one of 1.
Values affine_grid(const Call& call) {
  const Tensor theta = call.input(0);
  const Ints size = call.ints(1);
  const auto axes = static_cast<int64_t>(size.size()) - 2;
  if (axes < 1 || theta.ndim() != 3 || theta.shape(1) != axes || theta.shape(2) != axes + 1 ||
      theta.shape(0) != size[0]) {
    call.refuse("the matrices are " + bp::to_string(theta.shape()) + " and the size " +
                bp::to_string(IntList(size)) + "; allowed: (N, n, n + 1) for n spatial axes");
  }
  const Ints extents(size.begin() + 2, size.end());
  std::vector<Tensor> columns;
  for (int64_t i = axes; i-- > 0;) {
    const int64_t extent = check_host_count(call, extents[static_cast<size_t>(i)], "an extent");
    const Tensor along =
        floats_on(call.device(), coordinates(extent, call.flag("align_corners", false)), {extent},
                  theta.dtype());
    columns.push_back(align_axis(along, i, axes).expand(extents).unsqueeze(-1));
  }
  columns.push_back(ones(extents, theta.dtype(), call.device()).unsqueeze(-1));
  const Tensor places = concat(columns, axes).reshape({count_of(extents), axes + 1});
  const Tensor grid = matmul_nd(places, theta.transpose(1, 2));
  Ints shape = extents;
  shape.insert(shape.begin(), size[0]);
  shape.push_back(axes);
  return {grid.reshape(shape)};
}

// ---- DeformConv --------------------------------------------------------------------------------

// Returns first + step * i for each index i of axis `axis` of `extents`, as one row.
Tensor steps_along(const Ints& extents, size_t axis, int64_t first, int64_t step, bp_dtype dtype,
                   Device device) {
  const Tensor line = bp::arange({extents[axis]}, dtype, device, first, step);
  const auto ndim = static_cast<int64_t>(extents.size());
  return align_axis(line, static_cast<int64_t>(axis), ndim).expand(extents).reshape({-1});
}

struct Deformed {
  Window window;
  Ints results;  // The extents of the spatial axes of the result.
  int64_t groups, offset_groups;

  int64_t taps() const { return count_of(window.kernel); }
};

Deformed read_deformed(const Call& call, const Tensor& x, const Tensor& weight) {
  const Tensor offset = call.input(2);
  if (weight.ndim() != x.ndim() || offset.ndim() != x.ndim()) {
    call.refuse("input 0 is " + bp::to_string(x.shape()) + ", the weight " +
                bp::to_string(weight.shape()) + " and the offset " + bp::to_string(offset.shape()) +
                "; allowed: the same number of axes");
  }
  Deformed d{read_window(call, x.shape(), spatial_of(weight)), spatial_of(offset),
             call.integer("group", 1), call.integer("offset_group", 1)};
  const bool has_groups = d.groups > 0 && d.offset_groups > 0 &&
                          x.shape(1) == weight.shape(1) * d.groups &&
                          weight.shape(0) % d.groups == 0 && x.shape(1) % d.offset_groups == 0;
  const auto axes = static_cast<int64_t>(d.window.axis_count());
  if (!has_groups || offset.shape(1) != d.offset_groups * d.taps() * axes) {
    call.refuse("the channels of input 0 " + bp::to_string(x.shape()) + ", of the weight " +
                bp::to_string(weight.shape()) + " and of the offset " +
                bp::to_string(offset.shape()) + " do not fit to the groups");
  }
  return d;
}

// Returns what each place of the kernel meets: (N * offset groups, channels, taps, places).
Tensor sample_kernel(const Call& call, const Tensor& x, const Deformed& d) {
  const bp_dtype wide = wide_of(x.dtype());
  const Device device = x.device();
  const int64_t rows = x.shape(0) * d.offset_groups, places = count_of(d.results);
  const auto axes = static_cast<int64_t>(d.window.axis_count());
  const Tensor offset = call.input(2).to(wide).reshape({rows, d.taps(), axes, places});
  const Ints extents = spatial_of(x);
  Positions positions;
  for (size_t i = 0; i < d.window.axis_count(); ++i) {
    const Tensor taps = steps_along(d.window.kernel, i, 0, d.window.dilations[i], wide, device);
    const Tensor starts =
        steps_along(d.results, i, -d.window.pads[i], d.window.strides[i], wide, device);
    const Tensor moved = offset.select(2, static_cast<int64_t>(i)) + (taps.unsqueeze(1) + starts);
    positions.push_back(moved.reshape({rows, d.taps() * places}));
  }
  const int64_t channels = x.shape(1) / d.offset_groups;
  const Field field{x.reshape({rows, channels, count_of(extents)}), extents, "zeros", true};
  Tensor sampled = blend(field, positions, false).reshape({rows, channels, d.taps(), places});
  if (call.has(4)) sampled = sampled * call.input(4).reshape({rows, 1, d.taps(), places});
  return sampled;
}

Values deform_conv(const Call& call) {
  const Tensor x = call.input(0), weight = call.input(1);
  const Deformed d = read_deformed(call, x, weight);
  const int64_t depth = weight.shape(1) * d.taps(), outputs = weight.shape(0) / d.groups;
  const Tensor columns =
      sample_kernel(call, x, d).reshape({x.shape(0), d.groups, depth, count_of(d.results)});
  const Tensor rows = weight.to(columns.dtype()).reshape({d.groups, outputs, depth});
  Ints shape{x.shape(0), weight.shape(0)};
  shape.insert(shape.end(), d.results.begin(), d.results.end());
  const Tensor y = matmul_nd(rows, columns).reshape(shape).to(x.dtype());
  return {call.has(3) ? y + align_axis(call.input(3), 1, x.ndim()) : y};
}

// ---- Col2Im ------------------------------------------------------------------------------------

// Returns the number of blocks along each axis.
Ints blocks_of(const Call& call, const Ints& image, const Window& window) {
  Ints counts;
  for (size_t i = 0; i < image.size(); ++i) {
    const int64_t room = image[i] + window.pads[i] + window.pads[image.size() + i];
    if (room < window.reach(i)) {
      call.refuse("a block of " + std::to_string(window.reach(i)) + " elements is longer than " +
                  std::to_string(room) + " elements of the image with its pads");
    }
    counts.push_back((room - window.reach(i)) / window.strides[i] + 1);
  }
  return counts;
}

// Adds columns (N, C, taps, blocks) to an image. What lies in the pads goes to one more element,
// which is cut off.
Tensor add_columns(const Tensor& columns, const Ints& image, const Ints& blocks,
                   const Window& window) {
  const Device device = columns.device();
  Tensor is_inside, places;
  for (size_t i = 0; i < image.size(); ++i) {
    const Tensor taps = steps_along(window.kernel, i, 0, window.dilations[i], BP_I64, device);
    const Tensor starts =
        steps_along(blocks, i, -window.pads[i], window.strides[i], BP_I64, device);
    const Tensor place = taps.unsqueeze(1) + starts;
    const Tensor is_here = logical_and(ge(place, 0), lt(place, image[i]));
    is_inside = is_inside ? logical_and(is_inside, is_here) : is_here;
    places = places ? places * image[i] + place : place;
  }
  const int64_t n = columns.shape(0), c = columns.shape(1), size = count_of(image);
  const Ints flat{n, c, places.numel()};
  const Tensor indices = where(is_inside, places, size).reshape({places.numel()}).expand(flat);
  const Tensor target = zeros({n, c, size + 1}, columns.dtype(), device);
  const Tensor y = scatter_reduce(target, indices.contiguous(), columns.reshape(flat), 2);
  Ints shape{n, c};
  shape.insert(shape.end(), image.begin(), image.end());
  return y.narrow(2, 0, size).reshape(shape);
}

Values col2im(const Call& call) {
  const Tensor x = call.input(0);
  const Ints image = call.ints(1), block = call.ints(2);
  const size_t axes = image.size();
  const Window window{block, call.integers("strides", Ints(axes, 1)),
                      call.integers("dilations", Ints(axes, 1)),
                      call.integers("pads", Ints(2 * axes)), Ints(axes)};
  const auto are_between = [](const Ints& numbers, size_t count, int64_t least) {
    return numbers.size() == count &&
           std::ranges::all_of(numbers, [&](int64_t n) { return n >= least && n <= kMostOnHost; });
  };
  if (axes == 0 || !are_between(image, axes, 1) || !are_between(block, axes, 1) ||
      !are_between(window.strides, axes, 1) || !are_between(window.dilations, axes, 1) ||
      !are_between(window.pads, 2 * axes, 0) || count_or_negative(block) < 0) {
    call.refuse("image_shape has " + std::to_string(axes) + " extents; block_shape, strides and " +
                "dilations must have as many numbers above 0, and pads twice as many from 0 on");
  }
  const Ints blocks = blocks_of(call, image, window);
  const int64_t taps = count_of(block);
  if (x.ndim() != 3 || x.shape(1) % taps != 0 || x.shape(2) != count_or_negative(blocks)) {
    call.refuse("input 0 is " + bp::to_string(x.shape()) + "; allowed: (N, C * " +
                std::to_string(taps) + ", the product of " + bp::to_string(IntList(blocks)) + ")");
  }
  if (axes == 2 && is_plain_float(x.dtype())) {
    return {fold(x, image, block, window.strides, window.pads, window.dilations)};
  }
  const Tensor columns = computable(x).reshape({x.shape(0), x.shape(1) / taps, taps, x.shape(2)});
  return {converted(add_columns(columns, image, blocks, window), x.dtype())};
}

constexpr OpRow kRows[] = {
    {"AffineGrid", 20, affine_grid, "align_corners"},
    {"Col2Im", 18, col2im, "dilations pads strides", OnnxRoute::kOp},
    {"DeformConv", 19, deform_conv, "dilations group kernel_shape offset_group pads strides"},
    {"GridSample", 16, grid_sample, "align_corners mode padding_mode"},
};

}  // namespace

std::span<const OpRow> sampling_ops() { return kRows; }

}  // namespace bp::onnx

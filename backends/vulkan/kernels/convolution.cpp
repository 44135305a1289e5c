// convolution and its gradients as matrix products of unfolded windows (convolution.comp,
// matmul.comp):
//
//   columns (c, taps; n, places)   the element of x under each tap of each place of y
//   y (places, o) = columns^T weight^T       for each image and group
//   columns = weight^T grad_y, folded to grad_x
//   grad_weight (o; c, taps) = grad_y (o; n, places) columns^T
//
// It takes as many images at a time as columns.hpp allows.
#include <algorithm>
#include <array>

#include "backends/vulkan/kernels/columns.hpp"
#include "backends/vulkan/kernels/map.hpp"
#include "backends/vulkan/kernels/product.hpp"
#include "backends/vulkan/kernels/reduce.hpp"
#include "backends/vulkan/kernels/scratch.hpp"

namespace bp::vulkan {
namespace {

// Makes a product whose batch is the groups and the images of a chunk.
Product product_of_chunk(const Convolution& c, const Chunk& chunk) {
  Product p{.batch_ndim = 2};
  p.batch_shape = {c.groups, chunk.images};
  return p;
}

// Returns the address of image `first` of a tensor.
uint64_t address_from(const Launch& launch, const bp_tensor& t, int64_t first) {
  return launch.device_address(t) +
         static_cast<uint64_t>(first * t.strides[0] * dtype_size_bytes(t.dtype));
}

Product forward_product(const Convolution& c, const bp_tensor& weight, const bp_tensor& y,
                        const Chunk& chunk) {
  const int64_t row = chunk.images * c.places();  // A row of columns.
  Product p = product_of_chunk(c, chunk);
  p.m = c.places();
  p.n = c.outputs_of_group();
  p.k = c.depth();
  p.a = {.dtype = c.x->dtype, .row_stride = 1, .col_stride = row};
  p.a.batch_strides = {c.depth() * row, c.places()};
  p.b = {.dtype = weight.dtype, .row_stride = 1, .col_stride = weight.strides[0]};
  p.b.batch_strides = {p.n * weight.strides[0], 0};
  p.y = {.dtype = y.dtype, .row_stride = 1, .col_stride = y.strides[1]};
  p.y.batch_strides = {p.n * y.strides[1], y.strides[0]};
  if (c.bias != nullptr) {
    p.has_bias = true;
    p.bias_stride = c.bias->strides[0];
    p.bias_batch_strides = {p.n * c.bias->strides[0], 0};
  }
  return p;
}

Product input_product(const Convolution& c, const bp_tensor& weight, const bp_tensor& grad_y,
                      const Chunk& chunk) {
  const int64_t row = chunk.images * c.places();
  Product p = product_of_chunk(c, chunk);
  p.m = c.depth();
  p.n = c.places();
  p.k = c.outputs_of_group();
  p.a = {.dtype = weight.dtype, .row_stride = 1, .col_stride = weight.strides[0]};
  p.a.batch_strides = {p.k * weight.strides[0], 0};
  p.b = {.dtype = grad_y.dtype, .row_stride = grad_y.strides[1], .col_stride = 1};
  p.b.batch_strides = {p.k * grad_y.strides[1], grad_y.strides[0]};
  p.y = {.dtype = BP_F32, .row_stride = row, .col_stride = 1};
  p.y.batch_strides = {c.depth() * row, c.places()};
  return p;
}

// Makes the product of grad_weight. `turned` is grad_y as (o; n, places).
Product weight_product(const Convolution& c, const Chunk& chunk) {
  const int64_t row = chunk.images * c.places();
  Product p{.batch_ndim = 1};
  p.batch_shape = {c.groups};
  p.m = c.outputs_of_group();
  p.n = c.depth();
  p.k = row;
  p.a = {.dtype = c.y->dtype, .row_stride = row, .col_stride = 1};
  p.a.batch_strides = {p.m * row};
  p.b = {.dtype = c.x->dtype, .row_stride = 1, .col_stride = row};
  p.b.batch_strides = {p.n * row};
  p.y = {.dtype = BP_F32, .row_stride = p.n, .col_stride = 1};
  p.y.batch_strides = {p.m * p.n};
  return p;
}

// ---- The three ops: the workspace that each takes, and its work ---------------------------------

struct Forward {
  Forward(const Convolution& its_c, Scratch& scratch, const Env& env)
      : c(its_c),
        weight(*c.weight, 1, scratch),
        y(*c.y, 2, scratch),
        chunk(c.chunk(dtype_size_bytes(c.x->dtype))),
        columns(scratch.take(c.x->dtype, {c.channels() * c.taps(), chunk * c.places()})),
        partial(scratch.take_bytes(product_workspace(
            env, forward_product(c, weight.get(), y.get(), {0, chunk, columns})))) {}

  bp_status run(Launch& launch) const {
    if (c.images() * c.places() * c.outputs() == 0) return BP_OK;
    bp_status status = weight.fetch(launch);
    for (int64_t first = 0; first < c.images() && status == BP_OK; first += chunk) {
      const Chunk now{first, std::min(chunk, c.images() - first), columns};
      Product p = forward_product(c, weight.get(), y.get(), now);
      if (p.k != 0) {
        status = submit_columns(launch, c, now, false);
        if (status != BP_OK) return status;
        p.a.address = launch.device_address(columns.tensor());
        p.a.tensor = &columns.tensor();
        p.b.address = launch.device_address(weight.get());
        p.b.tensor = &weight.get();
      }
      p.y.address = address_from(launch, y.get(), first);
      p.y.tensor = &y.get();
      if (c.bias != nullptr) p.bias = launch.device_address(*c.bias);
      Ranges reads(launch, {&weight.get(), c.bias}), writes(launch, {&y.get()});
      reads.add(launch.workspace());
      status = submit_product(launch, p, reads, writes, partial);
    }
    return status == BP_OK ? y.put(launch) : status;
  }

  const Convolution c;
  const Packed weight, y;
  const int64_t chunk;
  const ScratchTensor columns;
  const uint64_t partial;
};

struct BackwardInput {
  BackwardInput(const Convolution& its_c, Scratch& scratch, const Env& env)
      : c(its_c),
        weight(*c.weight, 1, scratch),
        grad_y(*c.y, 2, scratch),
        chunk(c.chunk(sizeof(float))),
        columns(scratch.take(BP_F32, {c.channels() * c.taps(), chunk * c.places()})),
        partial(scratch.take_bytes(product_workspace(
            env, input_product(c, weight.get(), grad_y.get(), {0, chunk, columns})))) {}

  bp_status run(Launch& launch) const {
    if (element_count(*c.x) == 0) return BP_OK;
    if (c.is_empty()) return submit_map(launch, kMapCopy, {c.x, nullptr});
    bp_status status = weight.fetch(launch);
    if (status == BP_OK) status = grad_y.fetch(launch);
    for (int64_t first = 0; first < c.images() && status == BP_OK; first += chunk) {
      const Chunk now{first, std::min(chunk, c.images() - first), columns};
      Product p = input_product(c, weight.get(), grad_y.get(), now);
      p.a.address = launch.device_address(weight.get());
      p.a.tensor = &weight.get();
      p.b.address = address_from(launch, grad_y.get(), first);
      p.b.tensor = &grad_y.get();
      p.y.address = launch.device_address(columns.tensor());
      p.y.tensor = &columns.tensor();
      Ranges reads(launch, {&weight.get(), &grad_y.get()}), writes(launch);
      writes.add(launch.workspace());
      status = submit_product(launch, p, reads, writes, partial);
      if (status == BP_OK) status = submit_columns(launch, c, now, true);
    }
    return status;
  }

  const Convolution c;
  const Packed weight, grad_y;
  const int64_t chunk;
  const ScratchTensor columns;
  const uint64_t partial;
};

struct BackwardWeight {
  BackwardWeight(const Convolution& its_c, Scratch& scratch, const Env& env)
      : c(its_c),
        chunk(c.chunk(dtype_size_bytes(c.x->dtype))),
        chunk_count((c.images() + chunk - 1) / chunk),
        columns(scratch.take(c.x->dtype, {c.channels() * c.taps(), chunk * c.places()})),
        turned(scratch.take(c.y->dtype, {c.outputs(), chunk, c.places()})),
        sums(scratch.take(BP_F32, {std::max<int64_t>(1, chunk_count), c.outputs(), c.depth()})),
        partial(scratch.take_bytes(product_workspace(env, weight_product(c, {0, chunk, columns})))),
        reduced(scratch.take_bytes(reduction_workspace(sum_of_chunks()))) {}

  // Returns the sum over chunks, from (chunks, o, c, taps) to grad_weight.
  Reduction sum_of_chunks() const {
    const bp_tensor& w = *c.weight;
    std::array<int64_t, BP_MAX_RANK> shape{}, strides{};
    int64_t size = 1;
    for (uint32_t i = w.ndim; i-- > 0; size *= w.shape[i]) {
      shape[i + 1] = w.shape[i];
      strides[i + 1] = size;
    }
    shape[0] = chunk_count;
    strides[0] = size;
    const bp_tensor from{
        .shape = shape.data(), .strides = strides.data(), .ndim = w.ndim + 1, .dtype = BP_F32};
    return make_reduction(BP_OP_SUM, from, w, 1);
  }

  bp_status run(Launch& launch) const {
    if (element_count(*c.weight) == 0) return BP_OK;
    if (c.is_empty()) return submit_map(launch, kMapCopy, {c.weight, nullptr});
    Ranges scratch(launch);
    scratch.add(launch.workspace());
    for (int64_t number = 0; number < chunk_count; ++number) {
      const Chunk now{number * chunk, std::min(chunk, c.images() - number * chunk), columns};
      bp_status status = submit_columns(launch, c, now, false);
      if (status == BP_OK) status = turn(launch, now);
      if (status != BP_OK) return status;
      Product p = weight_product(c, now);
      p.a.address = launch.device_address(turned.tensor());
      p.a.tensor = &turned.tensor();
      p.b.address = launch.device_address(columns.tensor());
      p.b.tensor = &columns.tensor();
      p.y.address = launch.device_address(sums.tensor()) +
                    static_cast<uint64_t>(number * c.outputs() * c.depth()) * sizeof(float);
      p.y.tensor = &sums.tensor();
      status = submit_product(launch, p, scratch, scratch, partial);
      if (status != BP_OK) return status;
    }
    Reduction sum = sum_of_chunks();
    sum.from_address = launch.device_address(sums.tensor());
    sum.to_address = launch.device_address(*c.weight);
    return submit_reduction(launch, sum, scratch, Ranges(launch, {c.weight}), reduced);
  }

  // Copies grad_y of some images as (o, n, spatial).
  bp_status turn(Launch& launch, const Chunk& now) const {
    const bp_tensor& y = *c.y;
    std::array<int64_t, BP_MAX_RANK> shape{}, from{}, to{};
    std::copy_n(y.shape, y.ndim, shape.begin());
    std::copy_n(y.strides, y.ndim, from.begin());
    shape[0] = now.images;
    std::swap(shape[0], shape[1]);
    std::swap(from[0], from[1]);
    int64_t size = 1;
    for (uint32_t i = y.ndim; i-- > 0; size *= shape[i]) to[i] = size;
    bp_tensor source = y, target = turned.tensor();
    source.shape = target.shape = shape.data();
    source.strides = from.data();
    source.byte_offset +=
        static_cast<uint64_t>(now.first * y.strides[0] * dtype_size_bytes(y.dtype));
    target.strides = to.data();
    target.ndim = y.ndim;
    return submit_move(launch, kMapCopy, {&target, &source});
  }

  const Convolution c;
  const int64_t chunk, chunk_count;
  const ScratchTensor columns, turned, sums;
  const uint64_t partial, reduced;
};

Convolution call_of(const bp_convolution_args& a) {
  return {a.x, a.weight, a.y, a.bias, a.groups, a.stride, a.padding, a.dilation};
}
Convolution call_of(const bp_convolution_backward_input_args& a) {
  return {a.grad_x, a.weight, a.grad_y, nullptr, a.groups, a.stride, a.padding, a.dilation};
}
Convolution call_of(const bp_convolution_backward_weight_args& a) {
  return {a.x, a.grad_weight, a.grad_y, nullptr, a.groups, a.stride, a.padding, a.dilation};
}

template <typename Args>
bp_reason convolution_supports(const Args& args) {
  const Convolution c = call_of(args);
  constexpr int64_t kMost = int64_t{1} << 31;
  if (c.channels() * c.taps() * c.places() > kMost) return "an image has more than 2^31 columns";
  if (element_count(*c.x) > kMost) return "x has more than 2^31 elements";
  if (c.bias != nullptr && c.depth() > kMostOfProduct)
    return "a window has more than 2^16 elements";
  return c.taps() <= 32768 ? nullptr : "the kernel has more than 2^15 elements";
}

template <typename Args, typename Op>
uint64_t convolution_workspace(const Args& args, const Env& env) {
  Scratch scratch;
  const Op op(call_of(args), scratch, env);
  return scratch.size_bytes();
}

template <typename Args, typename Op>
bp_status convolution_launch(const Args& args, Launch& launch) {
  Scratch scratch(launch);
  const Op op(call_of(args), scratch, launch);
  return op.run(launch);
}

Reduction bias_sum(const bp_convolution_backward_bias_args& args) {
  return make_reduction(BP_OP_SUM, *args.grad_y, *args.grad_bias, ~2u);
}

uint64_t bias_workspace(const bp_convolution_backward_bias_args& args, const Env&) {
  return reduction_workspace(bias_sum(args));
}

bp_status bias_launch(const bp_convolution_backward_bias_args& args, Launch& launch) {
  Reduction sum = bias_sum(args);
  sum.from_address = address_of(launch, args.grad_y);
  sum.to_address = address_of(launch, args.grad_bias);
  return submit_reduction(launch, sum, Ranges(launch, {args.grad_y}),
                          Ranges(launch, {args.grad_bias}), launch.workspace_address());
}

// The dtypes of grad_y and grad_bias.
constexpr bp_dtype kShaderBiasDtypes[] = {BP_F32,  BP_F32, BP_F16, BP_F16,  BP_BF16,
                                          BP_BF16, BP_F16, BP_F32, BP_BF16, BP_F32};

template <typename Args, typename Op>
constexpr bp_kernel convolution_kernel(const char* name, uint32_t op) {
  return make_kernel<Args, convolution_launch<Args, Op>, convolution_supports<Args>,
                     convolution_workspace<Args, Op>>(
      kernel_row(name, op, {kShaderProductDtypes, 3}));
}

}  // namespace

constinit const bp_kernel kConvolution =
    convolution_kernel<bp_convolution_args, Forward>("convolution", BP_OP_CONVOLUTION);
constinit const bp_kernel kConvolutionBackwardInput =
    convolution_kernel<bp_convolution_backward_input_args, BackwardInput>(
        "convolution_backward_input", BP_OP_CONVOLUTION_BACKWARD_INPUT);
constinit const bp_kernel kConvolutionBackwardWeight =
    convolution_kernel<bp_convolution_backward_weight_args, BackwardWeight>(
        "convolution_backward_weight", BP_OP_CONVOLUTION_BACKWARD_WEIGHT);
constinit const bp_kernel kConvolutionBackwardBias =
    make_kernel<bp_convolution_backward_bias_args, bias_launch, nullptr, bias_workspace>(kernel_row(
        "convolution_backward_bias", BP_OP_CONVOLUTION_BACKWARD_BIAS, {kShaderBiasDtypes, 2}));

}  // namespace bp::vulkan

#include "backends/host_kernels/convolution_parts.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "backplane/shell/plan.hpp"

namespace bp::kernels {
namespace {

// Returns the convolution of the images [begin, begin + count) of the batch.
Convolution images_of(const Convolution& c, int64_t begin, int64_t count) {
  Convolution part = c;
  part.batch = part.x.shape[0] = part.y.shape[0] = count;
  for (auto [view, dtype] : {std::pair(&part.x, c.x_dtype), std::pair(&part.y, c.y_dtype)}) {
    if (view->address != nullptr) {
      view->address += begin * view->strides[0] * dtype_size_bytes(dtype);
    }
  }
  return part;
}

// Returns the convolution of the outputs [begin, begin + count) along the first spatial axis, and
// of the part of x that their windows cover.
Convolution outputs_of(const Convolution& c, int64_t begin, int64_t count) {
  Convolution part = c;
  const int64_t first = begin * c.stride[0] - c.low[0];
  const int64_t end = first + (count - 1) * c.stride[0] + (c.kernel[0] - 1) * c.dilation[0] + 1;
  const int64_t x_begin = std::clamp<int64_t>(first, 0, c.input[0]);
  part.low[0] = std::max<int64_t>(0, -first);
  part.high[0] = std::max<int64_t>(0, end - c.input[0]);
  part.input[0] = part.x.shape[2] = std::clamp(end, x_begin, c.input[0]) - x_begin;
  part.output[0] = part.y.shape[2] = count;
  part.x.address += x_begin * c.x.strides[2] * dtype_size_bytes(c.x_dtype);
  part.y.address += begin * c.y.strides[2] * dtype_size_bytes(c.y_dtype);
  return part;
}

// Returns the dtype in which the method takes a tensor.
bp_dtype taken_dtype(const Convolution& c, bp_dtype dtype) {
  return c.takes_bf16 && dtype == BP_BF16 ? dtype : c.sum_dtype;
}

// Returns whether oneDNN reads the view fast: one of its axes has neighbours.
bool has_neighbours(const View& view) {
  for (uint32_t i = 0; i < view.ndim; ++i) {
    if (view.shape[i] != 1 && view.strides[i] == 1) return true;
  }
  return element_count(view) == 1;
}

// Returns how many images are converted to f32 at once. The last-level cache holds them.
int64_t images_at_once(const Convolution& c) {
  constexpr int64_t kPartElements = 1 << 22;
  if (c.x_dtype == taken_dtype(c, c.x_dtype) && c.y_dtype == taken_dtype(c, c.y_dtype)) {
    return c.batch;
  }
  const int64_t elements = (element_count(c.x) + element_count(c.y)) / c.batch;
  const int64_t most = std::max<int64_t>(1, kPartElements / elements);
  const int64_t parts = (c.batch + most - 1) / most;
  return (c.batch + parts - 1) / parts;
}

// The sum of this many outputs loses few digits. Smaller parts take longer: parts of 4096 outputs
// of 64x64 images take twice as long as all outputs at once.
constexpr int64_t kSummedOutputs = 1 << 16;

// The number of images of a slice, and of their outputs along the first spatial axis.
struct SliceExtents {
  explicit SliceExtents(const Convolution& c) {
    int64_t row = 1;  // The outputs at one place of the first axis.
    for (int axis = 1; axis < c.axes; ++axis) row *= c.output[static_cast<size_t>(axis)];
    const int64_t image = c.output[0] * row;
    images = std::clamp<int64_t>(kSummedOutputs / image, 1, images_at_once(c));
    outputs = image > kSummedOutputs ? std::max<int64_t>(1, kSummedOutputs / row) : c.output[0];
  }
  int64_t images, outputs;
};

template <typename MakeProgram>
void add_slice(const Convolution& c, MakeProgram&& make_program, Parts& parts) {
  if (element_count(c.x) == 0) return;  // All windows lie in the padding.
  Slice slice;
  slice.copied = make_copied(c);
  slice.program = make_program(slice.copied);
  uint64_t end = place_copies(slice.copied, slice.program->workspace_size_bytes());
  const auto size_bytes = static_cast<uint64_t>(element_count(c.weight)) * sizeof(float);
  slice.copied.weight.offset = reserve_bytes(size_bytes, end);
  parts.size_bytes = std::max(parts.size_bytes, end);
  parts.slices.push_back(std::move(slice));
}

template <typename MakeProgram>
void add_slices(const Convolution& c, MakeProgram&& make_program, Parts& parts) {
  const SliceExtents extents(c);
  parts.sum = dense_view(c.weight, nullptr);
  Convolution sliced = c;
  sliced.weight = parts.sum;
  sliced.weight_dtype = BP_F32;
  for (int64_t image = 0; image < c.batch; image += extents.images) {
    const Convolution images = images_of(sliced, image, std::min(extents.images, c.batch - image));
    for (int64_t output = 0; output < c.output[0]; output += extents.outputs) {
      const int64_t count = std::min(extents.outputs, c.output[0] - output);
      add_slice(outputs_of(images, output, count), make_program, parts);
    }
  }
  parts.sum_offset = reserve_bytes(static_cast<uint64_t>(element_count(c.weight)) * sizeof(float),
                                   parts.size_bytes);
}

bool is_sliced(const Convolution& c) {
  if (c.direction != Direction::kBackwardWeight) return false;
  const SliceExtents extents(c);
  return extents.images != c.batch || extents.outputs != c.output[0];
}

// Makes the parts. make_program(c) returns the program of a part whose tensors the method takes as
// they are.
template <typename MakeProgram>
Parts make_parts(const Convolution& c, MakeProgram&& make_program) {
  Parts parts;
  parts.c = c;
  if (is_sliced(c)) {
    add_slices(c, make_program, parts);
    return parts;
  }
  parts.images = images_at_once(c);
  const int64_t last = c.batch - (c.batch - 1) / parts.images * parts.images;
  const auto place = [&](const Convolution& part, Copied& copied,
                         std::shared_ptr<const Program>& program) {
    copied = make_copied(part);
    program = make_program(copied);
    const uint64_t end = place_copies(copied, program->workspace_size_bytes());
    parts.size_bytes = std::max(parts.size_bytes, end);
  };
  place(images_of(c, 0, parts.images), parts.copied, parts.program);
  if (last != parts.images) place(images_of(c, 0, last), parts.last_copied, parts.last_program);
  return parts;
}

// Returns whether oneDNN runs all parts.
bool is_complete(const Parts& parts) {
  const auto runs = [](const std::shared_ptr<const Program>& program) {
    return program == nullptr || program->has_steps();
  };
  return runs(parts.program) && runs(parts.last_program) &&
         std::all_of(parts.slices.begin(), parts.slices.end(),
                     [&](const Slice& slice) { return runs(slice.program); });
}

Convolution through_f32(const Convolution& c) {
  Convolution plain = c;
  plain.takes_bf16 = false;
  return plain;
}

// Computes sum += part.
void add_part(const float* part, float* sum, int64_t count, int thread_count) {
  constexpr int64_t kGrainElements = 32768;
  parallel_for(thread_count, count, kGrainElements, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) sum[i] += part[i];
  });
}

void run_part(Copied copied, const Program& program, std::byte* packed, std::byte* workspace,
              int thread_count) {
  run_copied(copied, workspace, thread_count, [&](const Convolution& taken) {
    void* const plain[] = {taken.x.address, taken.weight.address, taken.y.address,
                           taken.bias.address};
    void* const with_packed[] = {taken.x.address, nullptr, taken.y.address, packed,
                                 taken.bias.address};
    if (packed != nullptr) {
      program.run(with_packed, workspace);
    } else {
      program.run(plain, workspace);
    }
  });
}

void run_slices(const Parts& parts, std::byte* workspace, int thread_count) {
  auto* const sum = reinterpret_cast<float*>(workspace + parts.sum_offset);
  const int64_t count = element_count(parts.sum);
  std::fill_n(sum, count, 0.0f);
  for (const Slice& slice : parts.slices) {
    Copied copied = slice.copied;
    copied.c.weight.address = workspace + copied.weight.offset;
    run_part(copied, *slice.program, nullptr, workspace, thread_count);
    add_part(reinterpret_cast<const float*>(copied.c.weight.address), sum, count, thread_count);
  }
  View from = parts.sum;
  from.address = workspace + parts.sum_offset;
  convert_elements(from, BP_F32, parts.c.weight, parts.c.weight_dtype, thread_count);
}

}  // namespace

Copied make_copied(const Convolution& c) {
  Copied copied;
  copied.c = c;
  const bool is_f32 = c.sum_dtype == BP_F32;
  const auto copy_if_needed = [](View& view, bp_dtype dtype, bp_dtype taken,
                                 bool is_taken) -> DenseCopy {
    if (is_taken && dtype == taken) return {};
    const DenseCopy copy(view, dtype, taken);
    view = copy.dense;
    return copy;
  };
  for (auto [view, dtype, copy] :
       {std::tuple(&copied.c.x, &copied.c.x_dtype, &copied.x),
        std::tuple(&copied.c.weight, &copied.c.weight_dtype, &copied.weight),
        std::tuple(&copied.c.y, &copied.c.y_dtype, &copied.y)}) {
    const bp_dtype given = std::exchange(*dtype, taken_dtype(c, *dtype));
    *copy = copy_if_needed(
        *view, given, *dtype,
        is_f32 ? is_describable(*view) && has_neighbours(*view) : is_contiguous(*view));
  }
  if (c.has_bias) {
    copied.bias = copy_if_needed(copied.c.bias, c.y_dtype, c.sum_dtype, is_contiguous(c.bias));
  }
  return copied;
}

uint64_t place_copies(Copied& copied, uint64_t size_bytes) {
  for (DenseCopy* copy : {&copied.x, &copied.weight, &copied.y, &copied.bias}) {
    copy->offset = reserve_bytes(copy->size_bytes(), size_bytes);
  }
  return size_bytes;
}

Parts make_parts(const Convolution& c, const Env& env) {
  Parts parts = make_parts(c, [&](Copied& copied) { return find_convolution(copied.c, env); });
  return is_complete(parts) ? parts : make_parts(through_f32(c), env);
}

void run_parts(const Parts& parts, std::byte* packed, std::byte* workspace, int thread_count) {
  const Convolution& c = parts.c;
  if (!parts.slices.empty()) return run_slices(parts, workspace, thread_count);
  for (int64_t begin = 0; begin < c.batch; begin += parts.images) {
    const bool is_last = begin + parts.images >= c.batch && parts.last_program != nullptr;
    Copied copied = is_last ? parts.last_copied : parts.copied;
    const Convolution part = images_of(c, begin, copied.c.batch);
    for (auto [copy, taken, view] : {std::tuple(&copied.x, &copied.c.x, &part.x),
                                     std::tuple(&copied.y, &copied.c.y, &part.y)}) {
      (copy->is_needed ? copy->view : *taken).address = view->address;
    }
    run_part(copied, is_last ? *parts.last_program : *parts.program, packed, workspace,
             thread_count);
  }
}

PackedParts make_packed_parts(const Convolution& c, const Env& env) {
  PackedParts result;
  result.parts = make_parts(c, [&](Copied& copied) {
    PackedConvolution packing = make_packed_convolution(copied.c, env);
    if (!copied.weight.is_needed && !packing.is_repacked)
      refuse_plan("the weight is read as it lies");
    std::shared_ptr<const Program> program = packing.program;
    if (result.packing.program == nullptr) {
      result.packing = std::move(packing);
      result.weight = copied.weight;
    } else if (result.packing.weight != packing.weight) {
      refuse_plan("the last part of the batch wants another layout of the weight");
    }
    copied.weight = {};
    return program;
  });
  return is_complete(result.parts) ? result : make_packed_parts(through_f32(c), env);
}

}  // namespace bp::kernels

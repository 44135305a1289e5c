#include "backends/cpu/kernels/convolution_parts.hpp"

#include <algorithm>
#include <tuple>

#include "backends/cpu/kernels/plan.hpp"

namespace bp::kernels {
namespace {

// Images [begin, begin + count) of the batch.
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

// How many images are converted to f32 at once: a part of the batch that the last cache holds.
int64_t images_at_once(const Convolution& c) {
  constexpr int64_t kPartElements = 1 << 22;
  if (c.x_dtype == c.sum_dtype && c.y_dtype == c.sum_dtype) return c.batch;
  const int64_t elements = (element_count(c.x) + element_count(c.y)) / c.batch;
  const int64_t most = std::max<int64_t>(1, kPartElements / elements);
  const int64_t parts = (c.batch + most - 1) / most;
  return (c.batch + parts - 1) / parts;
}

// make_program(c) gives the program of a part whose tensors are taken as they are.
template <typename MakeProgram>
Parts make_parts(const Convolution& c, MakeProgram&& make_program) {
  Parts parts;
  parts.c = c;
  parts.images = images_at_once(c);
  const int64_t last = c.batch - (c.batch - 1) / parts.images * parts.images;
  Convolution first = images_of(c, 0, parts.images);
  const bool is_summed = c.direction == Direction::kBackwardWeight && parts.images != c.batch;
  if (is_summed) {
    // Each part leaves its own gradient where its copies have it, in f32.
    parts.sum = dense_view(c.weight, nullptr);
    first.weight = parts.sum;
    first.weight_dtype = BP_F32;
  }
  const auto place = [&](const Convolution& part, Copied& copied,
                         std::shared_ptr<const Program>& program) {
    copied = make_copied(part);
    program = make_program(copied);
    uint64_t end = place_copies(copied, program->workspace_size_bytes());
    if (is_summed) {
      const auto size_bytes = static_cast<uint64_t>(element_count(c.weight)) * sizeof(float);
      copied.weight.offset = reserve_bytes(size_bytes, end);
    }
    parts.size_bytes = std::max(parts.size_bytes, end);
  };
  place(first, parts.copied, parts.program);
  if (last != parts.images) place(images_of(first, 0, last), parts.last_copied, parts.last_program);
  if (is_summed) {
    parts.sum_offset = reserve_bytes(static_cast<uint64_t>(element_count(c.weight)) * sizeof(float),
                                     parts.size_bytes);
  }
  return parts;
}

// sum = part, or sum += part.
void add_part(const float* part, float* sum, int64_t count, bool is_first, int thread_count) {
  constexpr int64_t kGrainElements = 32768;
  parallel_for(thread_count, count, kGrainElements, [&](int64_t begin, int64_t end) {
    if (is_first) {
      std::copy(part + begin, part + end, sum + begin);
    } else {
      for (int64_t i = begin; i < end; ++i) sum[i] += part[i];
    }
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

}  // namespace

Copied make_copied(const Convolution& c) {
  Copied copied;
  copied.c = c;
  const bool is_f32 = c.sum_dtype == BP_F32;
  const auto copy_if_needed = [&](View& view, bp_dtype dtype, bool is_taken) -> DenseCopy {
    if (is_taken && dtype == c.sum_dtype) return {};
    const DenseCopy copy(view, dtype, c.sum_dtype);
    view = copy.dense;
    return copy;
  };
  for (auto [view, dtype, copy] : {std::tuple(&copied.c.x, c.x_dtype, &copied.x),
                                   std::tuple(&copied.c.weight, c.weight_dtype, &copied.weight),
                                   std::tuple(&copied.c.y, c.y_dtype, &copied.y)}) {
    *copy = copy_if_needed(*view, dtype, is_f32 ? is_describable(*view) : is_contiguous(*view));
  }
  if (c.has_bias)
    copied.bias = copy_if_needed(copied.c.bias, c.y_dtype, is_contiguous(copied.c.bias));
  return copied;
}

uint64_t place_copies(Copied& copied, uint64_t size_bytes) {
  for (DenseCopy* copy : {&copied.x, &copied.weight, &copied.y, &copied.bias}) {
    copy->offset = reserve_bytes(copy->size_bytes(), size_bytes);
  }
  return size_bytes;
}

Parts make_parts(const Convolution& c, const Env& env) {
  return make_parts(c, [&](Copied& copied) { return find_convolution(copied.c, env); });
}

void run_parts(const Parts& parts, std::byte* packed, std::byte* workspace, int thread_count) {
  const Convolution& c = parts.c;
  const bool is_summed = parts.sum.ndim != 0;
  auto* const sum = reinterpret_cast<float*>(workspace + parts.sum_offset);
  for (int64_t begin = 0; begin < c.batch; begin += parts.images) {
    const bool is_last = begin + parts.images >= c.batch && parts.last_program != nullptr;
    Copied copied = is_last ? parts.last_copied : parts.copied;
    const Convolution part = images_of(c, begin, copied.c.batch);
    for (auto [copy, taken, view] : {std::tuple(&copied.x, &copied.c.x, &part.x),
                                     std::tuple(&copied.y, &copied.c.y, &part.y)}) {
      (copy->is_needed ? copy->view : *taken).address = view->address;
    }
    if (is_summed) copied.c.weight.address = workspace + copied.weight.offset;
    run_part(copied, is_last ? *parts.last_program : *parts.program, packed, workspace,
             thread_count);
    if (is_summed) {
      add_part(reinterpret_cast<const float*>(copied.c.weight.address), sum,
               element_count(parts.sum), begin == 0, thread_count);
    }
  }
  if (!is_summed) return;
  View from = parts.sum;
  from.address = workspace + parts.sum_offset;
  convert_elements(from, BP_F32, c.weight, c.weight_dtype, thread_count);
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
  return result;
}

}  // namespace bp::kernels

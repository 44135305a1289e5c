// embedding copies rows, and its gradient adds them. In the gradient each thread owns some rows of
// grad_weight and reads all indices: the sums have one order, whatever the number of threads.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "backends/cpu/kernels/kernels.hpp"
#include "backends/cpu/kernels/strided.hpp"

namespace bp::kernels {
namespace {

// The offset of row `row` of a tensor whose last `inner` axes are not counted.
int64_t row_offset(const View& view, uint32_t inner, int64_t row) {
  int64_t offset = 0;
  for (uint32_t i = view.ndim - inner; i-- > 0; row /= view.shape[i]) {
    offset += row % view.shape[i] * view.strides[i];
  }
  return offset;
}

// Where each index is, and the row of the other tensor that belongs to it.
struct Indices {
  View view;
  bool is_i64;

  int64_t operator[](int64_t position) const {
    const int64_t offset = row_offset(view, 0, position);
    return is_i64 ? reinterpret_cast<const int64_t*>(view.address)[offset]
                  : reinterpret_cast<const int32_t*>(view.address)[offset];
  }
};

[[noreturn]] void fail(const char* op, int64_t index, int64_t count) {
  throw StatusError(BP_INVALID_ARGUMENT, std::string(op) + ": an index is " +
                                             std::to_string(index) + ", not from 0 to " +
                                             std::to_string(count - 1));
}

// One of the indices that name no row, if there is one.
class Wrong {
 public:
  void set(int64_t index) {
    value_ = index;
    is_set_ = true;
  }
  void check(const char* op, int64_t count) const {
    if (is_set_) fail(op, value_, count);
  }

 private:
  std::atomic<int64_t> value_ = 0;
  std::atomic<bool> is_set_ = false;
};

template <typename T>
void copy_row(const T* from, int64_t from_stride, T* to, int64_t to_stride, int64_t count) {
  if (from_stride == 1 && to_stride == 1) {
    std::memcpy(to, from, static_cast<size_t>(count) * sizeof(T));
    return;
  }
  for (int64_t i = 0; i < count; ++i) to[i * to_stride] = from[i * from_stride];
}

constexpr int64_t kGrainElements = 16384;  // Below twice this, a team of threads costs more.

template <typename T>
void gather(const View& weight, const Indices& indices, const View& y, int thread_count) {
  const int64_t cols = weight.shape[1], count = weight.shape[0];
  Wrong wrong;
  const int64_t grain = std::max<int64_t>(1, kGrainElements / std::max<int64_t>(1, cols));
  parallel_for(thread_count, element_count(indices.view), grain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t index = indices[row];
      if (index < 0 || index >= count) {
        wrong.set(index);
        continue;
      }
      if (cols == 0) continue;  // Then there are no addresses either.
      copy_row(reinterpret_cast<const T*>(weight.address) + index * weight.strides[0],
               weight.strides[1], reinterpret_cast<T*>(y.address) + row_offset(y, 1, row),
               y.strides[y.ndim - 1], cols);
    }
  });
  wrong.check("embedding", count);
}

Indices indices_of(const bp_tensor& tensor) { return {view_of(tensor), tensor.dtype == BP_I64}; }

bp_status embedding_launch(const bp_embedding_args& args, Launch& launch) {
  const View weight = view_of(*args.weight), y = view_of(*args.y);
  const Indices indices = indices_of(*args.indices);
  const int64_t size_bytes = dtype_size_bytes(args.weight->dtype);
  return launch.submit([=, thread_count = launch.thread_count()] {
    switch (size_bytes) {
      case 1:
        return gather<uint8_t>(weight, indices, y, thread_count);
      case 2:
        return gather<uint16_t>(weight, indices, y, thread_count);
      case 4:
        return gather<uint32_t>(weight, indices, y, thread_count);
      default:
        return gather<uint64_t>(weight, indices, y, thread_count);
    }
  });
}

template <typename T>
void add_rows(const View& grad_y, const Indices& indices, const View& grad_weight,
              int thread_count) {
  const int64_t cols = grad_weight.shape[1], count = grad_weight.shape[0];
  const int64_t positions = element_count(indices.view);
  const int64_t to_stride = grad_weight.strides[1], from_stride = grad_y.strides[grad_y.ndim - 1];
  Wrong wrong;
  // A thread that owns few rows would do little but read indices.
  const int64_t work = positions * (cols + 1) + count * cols;
  const int threads = work < 2 * kGrainElements ? 1 : thread_count;
  parallel_for(threads, count, 1, [&](int64_t begin, int64_t end) {
    T* const to = reinterpret_cast<T*>(grad_weight.address);
    for (int64_t row = begin; row < end && cols > 0; ++row) {
      T* const target = to + row * grad_weight.strides[0];
      for (int64_t i = 0; i < cols; ++i) target[i * to_stride] = 0;
    }
    for (int64_t position = 0; position < positions; ++position) {
      const int64_t index = indices[position];
      if (index < 0 || index >= count) wrong.set(index);
      if (index < begin || index >= end || cols == 0) continue;
      T* const target = to + index * grad_weight.strides[0];
      const T* const source =
          reinterpret_cast<const T*>(grad_y.address) + row_offset(grad_y, 1, position);
      for (int64_t i = 0; i < cols; ++i) target[i * to_stride] += source[i * from_stride];
    }
  });
  if (count == 0 && positions != 0) wrong.set(indices[0]);
  wrong.check("embedding_backward", count);
}

bp_status embedding_backward_launch(const bp_embedding_backward_args& args, Launch& launch) {
  const View grad_y = view_of(*args.grad_y), grad_weight = view_of(*args.grad_weight);
  const Indices indices = indices_of(*args.indices);
  const bool is_f32 = args.grad_y->dtype == BP_F32;
  return launch.submit([=, thread_count = launch.thread_count()] {
    is_f32 ? add_rows<float>(grad_y, indices, grad_weight, thread_count)
           : add_rows<double>(grad_y, indices, grad_weight, thread_count);
  });
}

constexpr bp_dtype kDtypes[] = {BP_BOOL, BP_I64, BP_BOOL, BP_I32, BP_U8,  BP_I64, BP_U8,  BP_I32,
                                BP_I8,   BP_I64, BP_I8,   BP_I32, BP_I16, BP_I64, BP_I16, BP_I32,
                                BP_I32,  BP_I64, BP_I32,  BP_I32, BP_I64, BP_I64, BP_I64, BP_I32,
                                BP_F32,  BP_I64, BP_F32,  BP_I32, BP_F64, BP_I64, BP_F64, BP_I32};
constexpr bp_dtype kBackwardDtypes[] = {BP_F32, BP_I64, BP_F32, BP_I32,
                                        BP_F64, BP_I64, BP_F64, BP_I32};

}  // namespace

constinit const bp_kernel kEmbedding = make_kernel<bp_embedding_args, embedding_launch>({
    .name = "embedding",
    .op = BP_OP_EMBEDDING,
    .flags = BP_KERNEL_DETERMINISTIC,
    .dtype_rows = kDtypes,
    .dtype_row_count = std::size(kDtypes) / 2,
    .dtype_count = 2,
    .layouts = BP_LAYOUT_ANY,
});

constinit const bp_kernel kEmbeddingBackward =
    make_kernel<bp_embedding_backward_args, embedding_backward_launch>({
        .name = "embedding_backward",
        .op = BP_OP_EMBEDDING_BACKWARD,
        .flags = BP_KERNEL_DETERMINISTIC,
        .dtype_rows = kBackwardDtypes,
        .dtype_row_count = std::size(kBackwardDtypes) / 2,
        .dtype_count = 2,
        .layouts = BP_LAYOUT_ANY,
    });

}  // namespace bp::kernels

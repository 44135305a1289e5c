// What sort and topk share: the elements of lines as keys, and where sorted elements go.
#pragma once

#include "backends/cuda/kernels/keys.cuh"
#include "backends/cuda/kernels/radix_sort.cuh"
#include "backends/cuda/kernels/rows.cuh"

namespace bp::cuda {

// The tensors of a sort along an axis. So the elements of a line have one stride.
struct SortTensors {
  RowTensor x, y, indices;  // There may be no indices.
  bool is_i64 = false, is_descending = false;
  uint32_t kept = 0;  // How many elements of each line are written.
};

// Reads and writes elements of T, as radix_sort.cuh asks for it.
template <typename T>
struct SortIo {
  using Key = KeyOf<T>;

  class Line {
   public:
    __device__ Line(const SortTensors& all, uint32_t line)
        : x_(all.x.row<T>(line)),
          y_(all.y.row<T>(line)),
          indices_(all.indices.data),
          x_step_(all.x.elements.strides[0][0]),
          y_step_(all.y.elements.strides[0][0]),
          indices_step_(all.indices.elements.strides[0][0]),
          first_index_(all.indices.rows.offset(line)),
          kept_(all.kept),
          is_descending_(all.is_descending),
          is_i64_(all.is_i64) {}

    __device__ __forceinline__ Key key(uint32_t i) const {
      return ordered(key_of(x_[i * x_step_]));
    }
    // An element is made from its key. Only zeros and NaN are read from x.
    __device__ __forceinline__ void put(uint32_t rank, Key sorted, uint32_t place) const {
      if (rank >= kept_) return;
      const Key key = ordered(sorted);
      y_[rank * y_step_] = is_shared_key<T>(key) ? x_[place * x_step_] : element_of<T>(key);
      if (indices_ != nullptr) {
        store_index(indices_, first_index_ + rank * indices_step_, is_i64_, place);
      }
    }

   private:
    __device__ __forceinline__ Key ordered(Key key) const {
      return is_descending_ ? static_cast<Key>(~key) : key;
    }

    const T* x_;
    T* y_;
    std::byte* indices_;  // NULL if they are not asked for.
    int64_t x_step_, y_step_, indices_step_, first_index_;
    uint32_t kept_;
    bool is_descending_, is_i64_;
  };
  __device__ Line line(uint32_t number) const { return Line(tensors, number); }

  SortTensors tensors;
};

// Reads a frame of sort or topk.
template <typename Args>
SortTensors sort_tensors(const Args& args, bool is_descending) {
  const uint32_t axes = 1u << args.axis;
  SortTensors tensors;
  tensors.x = row_tensor(*args.x, axes);
  tensors.y = row_tensor(*args.y, axes);
  if (args.indices != nullptr) {
    tensors.indices = row_tensor(*args.indices, axes);
    tensors.is_i64 = is_i64_index(args.indices->dtype);
  }
  tensors.is_descending = is_descending;
  tensors.kept = static_cast<uint32_t>(axis_extent(*args.y, static_cast<size_t>(args.axis)));
  return tensors;
}

template <typename Args>
RowExtents sort_extents(const Args& args) {
  return row_extents(*args.x, 1u << args.axis);
}

// Returns the workspace for sorting all lines.
template <typename Args>
uint64_t sort_size_bytes(const Args& args) {
  const RowExtents extents = sort_extents(args);
  const int64_t key_bytes = dtype_size_bytes(args.x->dtype);
  return sort_size_bytes(extents.rows, extents.count, static_cast<uint32_t>(key_bytes));
}

template <typename Args>
bp_reason sort_supports(const Args& args) {
  const bp_reason reason =
      index_reason(args.indices, axis_extent(*args.x, static_cast<size_t>(args.axis)));
  return reason != nullptr ? reason : too_many_rows(*args.x, 1u << args.axis);
}

}  // namespace bp::cuda

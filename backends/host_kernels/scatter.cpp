// scatter, scatter_reduce and index_put. A line is the elements along `axis`. Threads share the
// lines. Each line is walked in the order of its indices, so the last of equal indices wins, and
// sums have a fixed order. index_put is one of the other two, for tensors whose named axes lie in
// one row, and so do the other axes.
//
// If an index names an element of all lines, as after an expansion of the indices, whole rows are
// set or added. Rows that are too short for the threads are shared by targets: each thread reads
// all indices, and owns some elements of every line.
//
// Sums of 16-bit floats are kept in f32, in the workspace, and rounded once. If an element is named
// by so many indices that a sum of them in f32 would lose digits, the sums of f32 and narrower
// floats are kept in f64. Counting the indices of each element first takes a byte for each of them,
// and less time than sums of twice the width.
#include <atomic>
#include <cstring>

#include "backends/host_kernels/copy.hpp"
#include "backends/host_kernels/indices.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/scatter_rows.hpp"

namespace bp::kernels {
namespace {

ScatterMethod method_of(const bp_scatter_args& args, bool) {
  return find_replacement(args.x->dtype, args.indices->dtype == BP_I64);
}

ScatterMethod method_of(const bp_scatter_reduce_args& args, bool is_long) {
  return find_addition(args.x->dtype, args.indices->dtype == BP_I64, is_long);
}

// data and strides are those of the counters.
void clear_row(std::byte* const* data, const int64_t*, int64_t n, const void*) {
  std::memset(data[0], 0, static_cast<size_t>(n));
}

// Whether sums may need f64, so that the indices of each element are to be counted.
template <typename Args>
bool may_be_long(const Args& args) {
  return axis_extent(*args.indices, static_cast<size_t>(args.axis)) > kShortSum &&
         method_of(args, true).sum_size_bytes > method_of(args, false).sum_size_bytes;
}

// y without gaps in the workspace, with other elements.
class Dense {
 public:
  Dense(const bp_tensor& y, bp_dtype dtype) : tensor_(y) {
    set_contiguous_strides(y.ndim, y.shape, strides_.data());
    tensor_.strides = strides_.data();
    tensor_.dtype = dtype;
  }
  Dense(const Dense&) = delete;
  const bp_tensor& tensor() const { return tensor_; }

 private:
  bp_tensor tensor_;
  std::array<int64_t, BP_MAX_RANK> strides_{};
};

// The sums begin the workspace, and the counters lie behind the widest ones.
template <typename Args>
int64_t counters_offset(const Args& args) {
  return dense_size_bytes(args.y->ndim, args.y->shape,
                          method_of(args, may_be_long(args)).sum_size_bytes);
}

template <typename Args>
uint64_t scatter_workspace(const Args& args, const Env&) {
  const int64_t counters = may_be_long(args) ? element_count(*args.y) : 0;
  return static_cast<uint64_t>(counters_offset(args)) + static_cast<uint64_t>(counters);
}

// Makes the loop over the first elements of all lines, or of one line of those that have the same
// indices.
template <typename Args>
Loop lines_of(const Args& args, const bp_tensor& target, ScatterAxis& axis, bool has_equal_lines) {
  const auto number = static_cast<size_t>(args.axis);
  axis.bounds = Bounds(axis_extent(target, number), args.bounds);
  axis.last = axis.bounds.extent;
  axis.count = axis_extent(*args.indices, number);
  axis.y_stride = axis_stride(target, number) * dtype_size_bytes(target.dtype);
  axis.index_stride = axis_stride(*args.indices, number) * dtype_size_bytes(args.indices->dtype);
  axis.src_stride = axis_stride(*args.src, number) * dtype_size_bytes(args.src->dtype);
  Reshaped y(target, *args.indices), indices(*args.indices, *args.indices),
      src(*args.src, *args.indices), x(*args.x, *args.indices);
  for (size_t i = 0; i < args.indices->ndim; ++i) {
    if (i != number && (has_equal_lines || args.indices->strides[i] != 0)) continue;
    y.collapse(i);
    indices.collapse(i);
    src.collapse(i);
    x.collapse(i);
  }
  if (axis.line_bytes != 0) return make_loop({&y, &indices, &src, &x});
  return make_loop({&y, &indices, &src});
}

// Whether each line of y is dense and has indices, so that it can be copied from x while it is
// brought to the caches for its indices.
template <typename Args>
bool may_copy_lines(const Args& args) {
  constexpr int64_t kLeastBytes = 256;  // Of a line: shorter ones are copied together.
  const auto axis = static_cast<uint32_t>(args.axis);
  const bp_tensor &y = *args.y, &x = *args.x, &indices = *args.indices;
  const bool is_in_place = data<std::byte>(y) == data<std::byte>(x);
  if (is_in_place || y.ndim == 0 || indices.shape[axis] == 0) return false;
  if (y.strides[axis] != 1 || x.strides[axis] != 1) return false;
  for (uint32_t i = 0; i < y.ndim; ++i) {
    if (i == axis) continue;
    if (indices.shape[i] != y.shape[i] || (indices.strides[i] == 0 && y.shape[i] != 1))
      return false;
  }
  return y.shape[axis] * dtype_size_bytes(y.dtype) >= kLeastBytes;
}

int64_t grain_of(const ScatterAxis& axis) {
  return std::max<int64_t>(1, kGrain / std::max<int64_t>(1, axis.count));
}

// A thread gets no fewer bytes of a row, so that threads do not share lines of a cache.
constexpr int64_t kRowPartBytes = 128;

// Sets or adds the rows of a loop, whose elements all have the same index. If a row has no part for
// each thread, each thread reads all indices, and owns some of the elements that they name.
void scatter_rows(const Loop& lines, RowFunction* row, const ScatterAxis& axis, int threads) {
  const int64_t part = std::max<int64_t>(1, kRowPartBytes / lines.size_bytes[0]);
  if (lines.count >= threads * part) {
    return run_loop(lines, row, threads, std::max(part, grain_of(axis)), &axis);
  }
  const int64_t targets = std::max<int64_t>(1, axis.bounds.extent);
  const int64_t work = std::max<int64_t>(1, axis.count * lines.count);
  parallel_for(threads, targets, 1 + targets * kGrain / work, [&](int64_t begin, int64_t end) {
    ScatterAxis part_of_axis = axis;
    part_of_axis.first = begin;
    part_of_axis.last = std::min(end, axis.bounds.extent);
    run_loop(lines, row, 1, kGrain, &part_of_axis);
  });
}

// Scattering with sums of one dtype.
class Scattering {
 public:
  template <typename Args>
  Scattering(const Args& args, const Launch& launch, bool is_long)
      : method_(method_of(args, is_long)), indices_(*args.indices) {
    const bool has_sums = method_.sum_size_bytes != 0;
    const Dense sums(*args.y, method_.sum_size_bytes == 8 ? BP_F64 : BP_F32);
    const bp_tensor& target = has_sums ? sums.tensor() : *args.y;
    begin_ = make_loop({&target, args.x});
    if (!has_sums && may_copy_lines(args)) {
      axis_.line_bytes =
          axis_extent(*args.y, static_cast<size_t>(args.axis)) * dtype_size_bytes(args.y->dtype);
    }
    lines_ = lines_of(args, target, axis_, true);
    end_ = make_loop({args.y, &target});
    if (has_sums) begin_.data[0] = lines_.data[0] = end_.data[1] = launch.workspace();
  }

  void run(const char* op, int threads) const {
    WrongIndex wrong;
    ScatterAxis axis = axis_;
    axis.wrong = &wrong;
    const bool is_in_place = begin_.data[0] == begin_.data[1], copies_lines = axis.line_bytes != 0;
    if (!is_in_place && !copies_lines) begin(threads);
    if (!copies_lines && lines_.rank == 1 && lines_.strides[1][0] == 0) {
      scatter_rows(lines_, method_.scatter, axis, threads);
    } else {
      run_loop(lines_, method_.scatter, threads, grain_of(axis), &axis);
    }
    if (method_.sum_size_bytes != 0) run_loop(end_, method_.end, threads, kGrain);
    wrong.check(op, indices_, axis.bounds.extent);
  }

 private:
  // Sets the sums to x.
  void begin(int threads) const {
    if (method_.sum_size_bytes == 0) return run_copy(begin_, begin_.size_bytes[0], threads);
    run_loop(begin_, method_.begin, threads, kGrain);
  }

  ScatterMethod method_;
  IndexTensor indices_;
  ScatterAxis axis_;
  Loop begin_, lines_, end_;
};

// Finds out whether more than kShortSum indices name one element.
class Counting {
 public:
  template <typename Args>
  Counting(const Args& args, const Launch& launch)
      : count_(find_counter(args.indices->dtype == BP_I64)) {
    const Dense counters(*args.y, BP_U8);
    clear_ = make_loop({&counters.tensor()});
    lines_ = lines_of(args, counters.tensor(), axis_, false);
    clear_.data[0] = lines_.data[0] = launch.workspace() + counters_offset(args);
  }

  bool is_long(int threads) const {
    std::atomic<bool> found = false;
    ScatterAxis axis = axis_;
    axis.is_long = &found;
    run_loop(clear_, clear_row, threads, kGrain);
    run_loop(lines_, count_, threads, grain_of(axis), &axis);
    return found;
  }

 private:
  RowFunction* count_;
  ScatterAxis axis_;
  Loop clear_, lines_;
};

template <typename Args>
bp_status submit_scatter(const char* op, const Args& args, const Launch& launch) {
  const Scattering brief(args, launch, false);
  const int threads = launch.thread_count();
  if (!may_be_long(args)) return launch.submit([=] { brief.run(op, threads); });
  const Scattering full(args, launch, true);
  const Counting counting(args, launch);
  return launch.submit([=] { (counting.is_long(threads) ? full : brief).run(op, threads); });
}

bp_status scatter_launch(const bp_scatter_args& args, Launch& launch) {
  return submit_scatter("scatter", args, launch);
}

bp_status scatter_reduce_launch(const bp_scatter_reduce_args& args, Launch& launch) {
  return submit_scatter("scatter_reduce", args, launch);
}

// A tensor of two axes, each of which stands for several axes of another tensor.
class Slices {
 public:
  // The first `count` axes become the first axis.
  Slices(const bp_tensor& tensor, uint32_t count) : tensor_(tensor) {
    tensor_.ndim = 2;
    tensor_.shape = extents_.data();
    tensor_.strides = strides_.data();
    exists_ = merge(tensor, 0, count, 0) && merge(tensor, count, tensor.ndim, 1);
  }
  Slices(const Slices&) = delete;

  // Sets the second axis, along which all elements are the same.
  Slices& repeat(int64_t extent) {
    extents_[1] = extent;
    strides_[1] = 0;
    return *this;
  }
  bool exists() const { return exists_; }
  const bp_tensor* tensor() const { return &tensor_; }

 private:
  // Makes an axis of the axes [begin, end). Returns whether they lie in one row.
  bool merge(const bp_tensor& tensor, uint32_t begin, uint32_t end, size_t axis) {
    for (uint32_t i = end; i-- > begin;) {
      if (tensor.shape[i] == 1) continue;
      if (extents_[axis] == 1) {
        strides_[axis] = tensor.strides[i];
      } else if (tensor.strides[i] != strides_[axis] * extents_[axis]) {
        return false;
      }
      extents_[axis] *= tensor.shape[i];
    }
    return true;
  }

  bp_tensor tensor_;
  std::array<int64_t, 2> extents_{1, 1}, strides_{0, 0};
  bool exists_ = false;
};

// The tensors of index_put as those of a scatter along the first axis.
struct PutSlices {
  explicit PutSlices(const bp_index_put_args& args)
      : x(*args.x, static_cast<uint32_t>(args.indexed_ndim)),
        indices(*args.indices, args.indices->ndim),
        values(*args.values, args.indices->ndim),
        y(*args.y, static_cast<uint32_t>(args.indexed_ndim)),
        bounds(args.bounds) {
    indices.repeat(y.tensor()->shape[1]);
  }

  bool exist() const { return x.exists() && indices.exists() && values.exists() && y.exists(); }
  bp_scatter_args replacement() const {
    return {.struct_size = sizeof(bp_scatter_args),
            .x = x.tensor(),
            .indices = indices.tensor(),
            .src = values.tensor(),
            .y = y.tensor(),
            .bounds = bounds};
  }
  bp_scatter_reduce_args addition() const {
    return {.struct_size = sizeof(bp_scatter_reduce_args),
            .x = x.tensor(),
            .indices = indices.tensor(),
            .src = values.tensor(),
            .y = y.tensor(),
            .bounds = bounds};
  }

  Slices x, indices, values, y;
  uint32_t bounds;
};

bp_reason index_put_supports(const bp_index_put_args& args) {
  return PutSlices(args).exist() ? nullptr : "the named axes or the others do not lie in one row";
}

uint64_t index_put_workspace(const bp_index_put_args& args, const Env& env) {
  return args.accumulate == 0 ? 0 : scatter_workspace(PutSlices(args).addition(), env);
}

bp_status index_put_launch(const bp_index_put_args& args, Launch& launch) {
  const PutSlices slices(args);
  if (!slices.exist()) {
    return launch.refuse(BP_UNSUPPORTED, std::string("index_put: ") + index_put_supports(args));
  }
  return args.accumulate == 0 ? submit_scatter("index_put", slices.replacement(), launch)
                              : submit_scatter("index_put", slices.addition(), launch);
}

constexpr auto kScatterRows = with_indices(kAnyDtypes);
constexpr auto kReduceRows = with_indices(kNumberDtypes);

}  // namespace

extern constinit const bp_kernel kScatter = make_kernel<bp_scatter_args, scatter_launch>(
    kernel_row("scatter", BP_OP_SCATTER, {kScatterRows, 2}, BP_KERNEL_IN_PLACE));

extern constinit const bp_kernel kScatterReduce =
    make_kernel<bp_scatter_reduce_args, scatter_reduce_launch, nullptr,
                scatter_workspace<bp_scatter_reduce_args>>(
        kernel_row("scatter_reduce", BP_OP_SCATTER_REDUCE, {kReduceRows, 2}, BP_KERNEL_IN_PLACE));

extern constinit const bp_kernel kIndexPut =
    make_kernel<bp_index_put_args, index_put_launch, index_put_supports, index_put_workspace>(
        kernel_row("index_put", BP_OP_INDEX_PUT, {kReduceRows, 2}));

}  // namespace bp::kernels

// nonzero and masked_select. The elements are cut into parts: threads count the chosen elements of
// each part first, so that each part knows where its results begin.
#include <algorithm>
#include <utility>

#include "backends/host_kernels/dtypes.hpp"
#include "backends/host_kernels/loop.hpp"
#include "backends/host_kernels/strided.hpp"

namespace bp::kernels {
namespace {

// What decides whether an element is chosen, in row-major order of a view with at least one axis.
struct Choice {
  explicit Choice(const bp_tensor& tensor) : view(view_of(tensor)), count(element_count(view)) {
    if (view.ndim == 0) view.ndim = 1, view.shape[0] = 1, view.strides[0] = 0;
    part_size = std::max<int64_t>(kLeastPart, (count + kMostParts - 1) / kMostParts);
    parts = (count + part_size - 1) / part_size;
  }
  int64_t begin(int64_t part) const { return part * part_size; }
  int64_t end(int64_t part) const { return std::min(count, (part + 1) * part_size); }

  static constexpr int64_t kLeastPart = 8192, kMostParts = 256;
  View view;
  int64_t count, part_size, parts;
};

// Calls fn(row, i) for each chosen element of [begin, end): element i of a row.
template <typename T, typename Fn>
void for_each_chosen(const View& view, int64_t begin, int64_t end, const Fn& fn) {
  const int64_t length = view.shape[view.ndim - 1], stride = view.strides[view.ndim - 1];
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / length, first = at - row * length;
    const int64_t last = std::min(length, first + end - at);
    const T* const x = reinterpret_cast<const T*>(view.address) + row_offset(view, row);
    for (int64_t i = first; i < last; ++i) {
      if (widen(x[i * stride]) != 0) fn(row, i);
    }
    at += last - first;
  }
}

// Counts the chosen elements of each part, and replaces the counts by where the results begin.
// Returns how many there are.
template <typename T>
int64_t place_parts(const Choice& choice, int64_t* starts, int threads) {
  parallel_for(threads, choice.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      int64_t count = 0;
      for_each_chosen<T>(choice.view, choice.begin(part), choice.end(part),
                         [&](int64_t, int64_t) { ++count; });
      starts[part] = count;
    }
  });
  int64_t total = 0;
  for (int64_t part = 0; part < choice.parts; ++part) total += std::exchange(starts[part], total);
  return total;
}

// Calls write(part, start) for each part, and fill(k) for the places behind the last result.
template <typename T, typename Write, typename Fill>
void choose(const Choice& choice, int64_t* starts, const View& count, int threads,
            const Write& write, const Fill& fill) {
  const int64_t total = place_parts<T>(choice, starts, threads);
  parallel_for(threads, choice.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) write(part, starts[part]);
  });
  parallel_for(threads, choice.count - total, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t k = total + begin; k < total + end; ++k) fill(k);
  });
  if (count.address != nullptr) *reinterpret_cast<int64_t*>(count.address) = total;
}

View optional_view(const bp_tensor* tensor) {
  return tensor == nullptr ? View() : view_of(*tensor);
}

uint64_t starts_bytes(const bp_tensor& choosing) {
  return static_cast<uint64_t>(Choice(choosing).parts) * sizeof(int64_t);
}

// ---- nonzero --------------------------------------------------------------------------------- //

// Writes the indices of the chosen elements of a part, from row `k` of the results on.
template <typename T>
void write_places(const Choice& choice, const View& indices, uint32_t axes, int64_t part,
                  int64_t k) {
  const View& view = choice.view;
  auto* const to = reinterpret_cast<int64_t*>(indices.address);
  for_each_chosen<T>(view, choice.begin(part), choice.end(part), [&](int64_t row, int64_t i) {
    int64_t* const at = to + k++ * indices.strides[0];
    if (axes == 0) return;
    at[(axes - 1) * indices.strides[1]] = i;
    for (uint32_t axis = axes - 1; axis-- > 0; row /= view.shape[axis]) {
      at[axis * indices.strides[1]] = row % view.shape[axis];
    }
  });
}

bp_status nonzero_launch(const bp_nonzero_args& args, Launch& launch) {
  const Choice choice(*args.x);
  const View indices = view_of(*args.indices), count = optional_view(args.count);
  const uint32_t axes = args.x->ndim;
  return with_any(args.x->dtype, [&]<typename T>(T) {
    return launch.submit([=, threads = launch.thread_count(),
                          starts = launch.workspace<int64_t>()] {
      choose<T>(
          choice, starts, count, threads,
          [&](int64_t part, int64_t k) { write_places<T>(choice, indices, axes, part, k); },
          [&](int64_t k) {
            auto* const row = reinterpret_cast<int64_t*>(indices.address) + k * indices.strides[0];
            for (uint32_t axis = 0; axis < axes; ++axis) row[axis * indices.strides[1]] = -1;
          });
    });
  });
}

uint64_t nonzero_workspace(const bp_nonzero_args& args, const Env&) {
  return starts_bytes(*args.x);
}

// ---- masked_select --------------------------------------------------------------------------- //

bp_status masked_select_launch(const bp_masked_select_args& args, Launch& launch) {
  const Choice choice(*args.mask);
  View x = view_of(*args.x);
  if (x.ndim == 0) x.ndim = 1, x.strides[0] = 0;
  std::copy_n(choice.view.shape, choice.view.ndim, x.shape);
  const View y = view_of(*args.y), count = optional_view(args.count);
  return with_any(args.x->dtype, [&]<typename T>(T) {
    return launch.submit(
        [=, threads = launch.thread_count(), starts = launch.workspace<int64_t>()] {
          const T* const from = reinterpret_cast<const T*>(x.address);
          T* const to = reinterpret_cast<T*>(y.address);
          const int64_t step = x.strides[x.ndim - 1];
          choose<uint8_t>(
              choice, starts, count, threads,
              [&](int64_t part, int64_t k) {
                for_each_chosen<uint8_t>(
                    choice.view, choice.begin(part), choice.end(part), [&](int64_t row, int64_t i) {
                      to[k++ * y.strides[0]] = from[row_offset(x, row) + i * step];
                    });
              },
              [&](int64_t k) { to[k * y.strides[0]] = T{}; });
        });
  });
}

uint64_t masked_select_workspace(const bp_masked_select_args& args, const Env&) {
  return starts_bytes(*args.mask);
}

}  // namespace

constinit const bp_kernel kNonzero =
    make_kernel<bp_nonzero_args, nonzero_launch, nullptr, nonzero_workspace>(
        kernel_row("nonzero", BP_OP_NONZERO, kAnyDtypes));
constinit const bp_kernel kMaskedSelect =
    make_kernel<bp_masked_select_args, masked_select_launch, nullptr, masked_select_workspace>(
        kernel_row("masked_select", BP_OP_MASKED_SELECT, kAnyDtypes));

}  // namespace bp::kernels

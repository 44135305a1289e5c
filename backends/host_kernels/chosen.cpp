// nonzero and masked_select. The elements are cut into parts: threads count the chosen elements of
// each part first, so that each part knows where its results begin.
//
// Elements are taken in words: a bit of a word says whether its element is chosen. A branch for
// each element would take longer, because nobody can predict it.
#include <algorithm>
#include <array>
#include <bit>
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

constexpr int64_t kWord = 64;

// Returns a word of n elements.
template <typename T>
uint64_t word_of(const T* x, int64_t stride, int64_t n) {
  std::array<uint8_t, kWord> flags{};
  uint8_t* const flag = flags.data();
  if (stride == 1) {
    for (int64_t i = 0; i < n; ++i) flag[i] = widen(x[i]) != 0;
  } else {
    for (int64_t i = 0; i < n; ++i) flag[i] = widen(x[i * stride]) != 0;
  }
  uint64_t word = 0;
  for (int64_t i = 0; i < kWord; i += 8) {
    uint64_t eight = 0;
    for (int64_t j = 0; j < 8; ++j) eight |= uint64_t{flag[i + j]} << (8 * j);
    word |= eight * 0x0102040810204080u >> 56 << i;  // The upper byte has the lowest bits of all.
  }
  return word;
}

// Calls take(row, i, word) for the elements [begin, end): the word begins with element i of a row.
template <typename T, typename Take>
void for_each_word(const View& view, int64_t begin, int64_t end, const Take& take) {
  const int64_t length = view.shape[view.ndim - 1], stride = view.strides[view.ndim - 1];
  for (int64_t at = begin; at < end;) {
    const int64_t row = at / length, first = at - row * length;
    const int64_t last = std::min(length, first + end - at);
    const T* const x = reinterpret_cast<const T*>(view.address) + row_offset(view, row);
    for (int64_t i = first; i < last; i += kWord) {
      take(row, i, word_of(x + i * stride, stride, std::min(kWord, last - i)));
    }
    at += last - first;
  }
}

// Calls fn(i) for the chosen elements of a word, which begins with element `first`.
template <typename Fn>
void for_each_chosen(uint64_t word, int64_t first, const Fn& fn) {
  for (; word != 0; word &= word - 1) fn(first + std::countr_zero(word));
}

// Counts the chosen elements of each part, and replaces the counts by where the results begin.
// Returns how many there are.
template <typename T>
int64_t place_parts(const Choice& choice, int64_t* starts, int threads) {
  parallel_for(threads, choice.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      int64_t count = 0;
      for_each_word<T>(choice.view, choice.begin(part), choice.end(part),
                       [&](int64_t, int64_t, uint64_t word) { count += std::popcount(word); });
      starts[part] = count;
    }
  });
  int64_t total = 0;
  for (int64_t part = 0; part < choice.parts; ++part) total += std::exchange(starts[part], total);
  return total;
}

// Calls write(part, start) for each part, and fill(begin, end) for places behind the last result.
template <typename T, typename Write, typename Fill>
void choose(const Choice& choice, int64_t* starts, const View& count, int threads,
            const Write& write, const Fill& fill) {
  const int64_t total = place_parts<T>(choice, starts, threads);
  parallel_for(threads, choice.parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) write(part, starts[part]);
  });
  parallel_for(threads, choice.count - total, kGrain,
               [&](int64_t begin, int64_t end) { fill(total + begin, total + end); });
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
  if (axes == 0) return;
  const View& view = choice.view;
  const int64_t step = indices.strides[1];
  const uint32_t last = axes - 1;
  int64_t* at = reinterpret_cast<int64_t*>(indices.address) + k * indices.strides[0];
  std::array<int64_t, BP_MAX_RANK> place{};
  const auto take = [&](int64_t row, int64_t first, uint64_t word) {
    for (uint32_t axis = last; axis-- > 0; row /= view.shape[axis]) {
      place[axis] = row % view.shape[axis];
    }
    for_each_chosen(word, first, [&](int64_t i) {
      for (uint32_t axis = 0; axis < last; ++axis) at[axis * step] = place[axis];
      at[last * step] = i;
      at += indices.strides[0];
    });
  };
  for_each_word<T>(view, choice.begin(part), choice.end(part), take);
}

// Sets the rows [begin, end) of the indices to -1.
void clear_places(const View& indices, uint32_t axes, int64_t begin, int64_t end) {
  auto* const to = reinterpret_cast<int64_t*>(indices.address) + begin * indices.strides[0];
  if (indices.strides[0] == axes && (axes <= 1 || indices.strides[1] == 1)) {
    std::fill_n(to, (end - begin) * axes, int64_t{-1});
    return;
  }
  for (int64_t k = 0; k < end - begin; ++k) {
    for (uint32_t axis = 0; axis < axes; ++axis) {
      to[k * indices.strides[0] + axis * indices.strides[1]] = -1;
    }
  }
}

bp_status nonzero_launch(const bp_nonzero_args& args, Launch& launch) {
  const Choice choice(*args.x);
  const View indices = view_of(*args.indices), count = optional_view(args.count);
  const uint32_t axes = args.x->ndim;
  return with_any(args.x->dtype, [&]<typename T>(T) {
    return launch.submit(
        [=, threads = launch.thread_count(), starts = launch.workspace<int64_t>()] {
          choose<T>(
              choice, starts, count, threads,
              [&](int64_t part, int64_t k) { write_places<T>(choice, indices, axes, part, k); },
              [&](int64_t begin, int64_t end) { clear_places(indices, axes, begin, end); });
        });
  });
}

uint64_t nonzero_workspace(const bp_nonzero_args& args, const Env&) {
  return starts_bytes(*args.x);
}

// ---- masked_select --------------------------------------------------------------------------- //

// Writes the elements of x that a part chooses, from element `k` of the results on.
template <typename T>
void write_elements(const Choice& choice, const View& x, const View& y, int64_t part, int64_t k) {
  const int64_t step = x.strides[x.ndim - 1];
  T* to = reinterpret_cast<T*>(y.address) + k * y.strides[0];
  const auto take = [&](int64_t row, int64_t first, uint64_t word) {
    const T* const from = reinterpret_cast<const T*>(x.address) + row_offset(x, row);
    for_each_chosen(word, first, [&](int64_t i) {
      *to = from[i * step];
      to += y.strides[0];
    });
  };
  for_each_word<uint8_t>(choice.view, choice.begin(part), choice.end(part), take);
}

// Sets the elements [begin, end) of y to 0.
template <typename T>
void clear_elements(const View& y, int64_t begin, int64_t end) {
  T* const to = reinterpret_cast<T*>(y.address);
  if (y.strides[0] == 1) {
    std::fill(to + begin, to + end, T{});
    return;
  }
  for (int64_t k = begin; k < end; ++k) to[k * y.strides[0]] = T{};
}

bp_status masked_select_launch(const bp_masked_select_args& args, Launch& launch) {
  const Choice choice(*args.mask);
  View x = view_of(*args.x);
  if (x.ndim == 0) x.ndim = 1, x.strides[0] = 0;
  std::copy_n(choice.view.shape, choice.view.ndim, x.shape);
  const View y = view_of(*args.y), count = optional_view(args.count);
  return with_any(args.x->dtype, [&]<typename T>(T) {
    return launch.submit(
        [=, threads = launch.thread_count(), starts = launch.workspace<int64_t>()] {
          choose<uint8_t>(
              choice, starts, count, threads,
              [&](int64_t part, int64_t k) { write_elements<T>(choice, x, y, part, k); },
              [&](int64_t begin, int64_t end) { clear_elements<T>(y, begin, end); });
        });
  });
}

uint64_t masked_select_workspace(const bp_masked_select_args& args, const Env&) {
  return starts_bytes(*args.mask);
}

}  // namespace

extern constinit const bp_kernel kNonzero =
    make_kernel<bp_nonzero_args, nonzero_launch, nullptr, nonzero_workspace>(
        kernel_row("nonzero", BP_OP_NONZERO, kAnyDtypes));
extern constinit const bp_kernel kMaskedSelect =
    make_kernel<bp_masked_select_args, masked_select_launch, nullptr, masked_select_workspace>(
        kernel_row("masked_select", BP_OP_MASKED_SELECT, kAnyDtypes));

}  // namespace bp::kernels

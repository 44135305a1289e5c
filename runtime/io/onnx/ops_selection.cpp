// Operators whose result has as many elements as values say, and the largest elements. Compress and
// Unique read their input on the host, and NonZero reads a count.
#include <map>
#include <utility>

#include "backplane/runtime/counted.hpp"
#include "runtime/io/onnx/composed.hpp"
#include "runtime/io/onnx/op_table.hpp"

namespace bp::onnx {
namespace {

using Ints = std::vector<int64_t>;

Values top_k(const Call& call) {
  const Tensor x = call.input(0);
  const int64_t k = call.opset() < 10 ? call.required_integer("k") : call.integer(1);
  const int64_t axis = call.axis(call.integer("axis", -1), x.ndim());
  Tensor places;
  const Tensor y = topk(ordered(x), k, axis, call.flag("largest", true), &places);
  return {unordered(y, x.dtype()), places};
}

// Returns input 0 and the axis that the node names, or the flat input and axis 0 if it names none.
std::pair<Tensor, int64_t> along_axis(const Call& call) {
  const Tensor x = call.input(0);
  if (!call.has("axis")) return {x.reshape({x.numel()}), 0};
  return {x, call.axis(call.integer("axis", 0), x.ndim())};
}

Values compress(const Call& call) {
  const auto [x, axis] = along_axis(call);
  const Ints condition = call.ints(1);
  Ints places;
  for (size_t i = 0; i < condition.size(); ++i) {
    if (condition[i] != 0) places.push_back(static_cast<int64_t>(i));
  }
  const auto count = static_cast<int64_t>(places.size());
  return {index_select(x, ints_on(x.device(), places, {count}), axis)};
}

// The axes of the input come first, as in NumPy.
Values non_zero(const Call& call) {
  const Tensor x = call.input(0);
  if (x.ndim() == 0) return {host_ints({}, {0, 0})};
  return {exact_nonzero(x.to(BP_BOOL)).transpose(0, 1)};
}

// ---- Unique ------------------------------------------------------------------------------------

// The different slices of an axis.
struct Unique {
  Ints firsts;    // Of each: where it is first.
  Ints inverses;  // Of each slice of the axis: which one it is.
  Ints counts;    // Of each: how often it is there.
};

// `slices` has the elements of each slice behind each other.
template <typename T>
Unique find_unique(const std::vector<T>& slices, size_t count, bool is_sorted) {
  const size_t size = count == 0 ? 0 : slices.size() / count;
  std::map<std::vector<T>, size_t> numbers;
  Unique unique;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = slices.begin() + static_cast<std::ptrdiff_t>(i * size);
    const std::vector<T> slice(begin, begin + static_cast<std::ptrdiff_t>(size));
    const auto [found, is_new] = numbers.emplace(slice, unique.firsts.size());
    if (is_new) {
      unique.firsts.push_back(static_cast<int64_t>(i));
      unique.counts.push_back(0);
    }
    ++unique.counts[found->second];
    unique.inverses.push_back(static_cast<int64_t>(found->second));
  }
  if (!is_sorted) return unique;
  Unique sorted;
  Ints renamed(unique.firsts.size());
  for (const auto& [slice, number] : numbers) {
    renamed[number] = static_cast<int64_t>(sorted.firsts.size());
    sorted.firsts.push_back(unique.firsts[number]);
    sorted.counts.push_back(unique.counts[number]);
  }
  for (const int64_t number : unique.inverses) {
    sorted.inverses.push_back(renamed[static_cast<size_t>(number)]);
  }
  return sorted;
}

Values unique_slices(const Call& call) {
  const auto [x, axis] = along_axis(call);
  const HostTensor host = to_host(x.transpose(0, axis).contiguous());
  const auto count = static_cast<size_t>(x.shape(axis));
  const bool is_sorted = call.flag("sorted", true);
  const Unique unique = is_plain_float(x.dtype())
                            ? find_unique(host.to_doubles("input 0"), count, is_sorted)
                            : find_unique(host.to_ints("input 0"), count, is_sorted);
  const auto found = static_cast<int64_t>(unique.firsts.size());
  return {index_select(x, ints_on(x.device(), unique.firsts, {found}), axis),
          host_ints(unique.firsts, {found}),
          host_ints(unique.inverses, {static_cast<int64_t>(count)}),
          host_ints(unique.counts, {found})};
}

constexpr OpRow kRows[] = {
    {"Compress", 9, compress, "axis", OnnxRoute::kHost},
    {"NonZero", 9, non_zero, "", OnnxRoute::kOp},
    {"TopK", 1, top_k, "axis k largest sorted", OnnxRoute::kOp},
    {"Unique", 11, unique_slices, "axis sorted", OnnxRoute::kHost},
};

}  // namespace

std::span<const OpRow> selection_ops() { return kRows; }

}  // namespace bp::onnx

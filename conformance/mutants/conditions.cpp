// Which launches a fault strikes, and which elements of an output.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstring>

#include "conformance/mutants/kernel_fault.hpp"
#include "registry/tensors/strides.hpp"

namespace bp::faults {
namespace {

constexpr struct {
  std::string_view name;
  bp_dtype dtype;
} kDtypes[] = {{"bool", BP_BOOL}, {"u8", BP_U8},   {"i8", BP_I8},   {"i16", BP_I16},
               {"i32", BP_I32},   {"i64", BP_I64}, {"f16", BP_F16}, {"bf16", BP_BF16},
               {"f32", BP_F32},   {"f64", BP_F64}};

// Returns 2^10 for "large2^10".
int64_t power_in(std::string_view condition) {
  const std::string_view digits = condition.substr(condition.find('^') + 1);
  int exponent = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
  return int64_t{1} << exponent;
}

template <typename Test>
bool any_tensor(const FaultyLaunch& launch, Test test) {
  return std::ranges::any_of(launch.tensors,
                             [&](const Argument& argument) { return test(*argument.tensor); });
}

template <typename Test>
bool any_output(const FaultyLaunch& launch, Test test) {
  return std::ranges::any_of(launch.tensors, [&](const Argument& argument) {
    return argument.member->is_output() && test(*argument.tensor);
  });
}

bool is_broadcast(const bp_tensor& t) {
  for (uint32_t axis = 0; axis < t.ndim; ++axis) {
    if (t.strides[axis] == 0 && t.shape[axis] > 1) return true;
  }
  return false;
}

bool has_long_axis(const bp_tensor& t, int64_t extent) {
  return std::any_of(t.shape, t.shape + t.ndim, [&](int64_t n) { return n >= extent; });
}

bool is_aliased(const FaultyLaunch& launch) {
  for (const Argument& output : launch.tensors) {
    if (!output.member->is_output()) continue;
    for (const Argument& input : launch.tensors) {
      if (!input.member->is_output() && input.tensor->buffer == output.tensor->buffer) return true;
    }
  }
  return false;
}

bool gives_optional(const FaultyLaunch& launch) {
  return std::ranges::any_of(launch.tensors,
                             [](const Argument& a) { return a.member->kind == "tensor_opt"; });
}

template <typename T>
T read(const void* args, size_t offset) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(args) + offset, sizeof(T));
  return value;
}

bool has_attribute(const FaultyLaunch& launch) {
  const auto size_bytes = read<uint32_t>(launch.args, 0);
  for (const Member& m : launch.state.op->members) {
    if (m.is_input() || m.is_output() || m.kind == "dtype") continue;
    const bool is_narrow = m.kind == "i32" || m.kind == "enumeration";
    const size_t at = m.kind == "i64_list" ? m.offset - sizeof(uint64_t) : m.offset;
    if (at + (is_narrow ? 4 : 8) > size_bytes) continue;
    if (is_narrow ? read<uint32_t>(launch.args, at) != 0 : read<uint64_t>(launch.args, at) != 0) {
      return true;
    }
  }
  return false;
}

bool has_inline_scalar(const FaultyLaunch& launch) {
  const auto size_bytes = read<uint32_t>(launch.args, 0);
  return std::ranges::any_of(launch.state.op->members, [&](const Member& m) {
    return m.has_scalar() && m.offset + sizeof(void*) <= size_bytes &&
           read<const void*>(launch.args, m.offset) == nullptr;
  });
}

bool is_on_other_stream(const FaultyLaunch& launch) {
  const bp_stream_ops& streams = *launch.call.wrapped.streams;
  bp_stream* usual = nullptr;
  const bp_launch& l = *launch.call.launch;
  return streams.default_stream(streams.self, l.device, &usual) == BP_OK && usual != l.stream;
}

bool fits_shape(const FaultyLaunch& launch, std::string_view when) {
  if (when == "offset") return any_tensor(launch, [](auto& t) { return t.byte_offset != 0; });
  if (when == "strided") {
    return any_tensor(launch, [](auto& t) { return !tensors::is_contiguous(t); });
  }
  if (when == "broadcast") return any_tensor(launch, is_broadcast);
  if (when == "rank5") return any_tensor(launch, [](auto& t) { return t.ndim >= 5; });
  if (when == "odd") {
    return any_output(launch, [](auto& t) { return t.ndim > 0 && t.shape[t.ndim - 1] % 16 != 0; });
  }
  const int64_t least = power_in(when);
  if (when.starts_with("large")) {
    return any_output(launch, [&](auto& t) { return tensors::element_count(t) >= least; });
  }
  return any_tensor(launch, [&](auto& t) { return has_long_axis(t, least); });
}

bool fits_condition(const FaultyLaunch& launch, uint64_t ordinal, bool is_first_thread) {
  const std::string_view when = launch.fault().when;
  if (when == "always") return true;
  if (when == "second") return ordinal > 1;
  if (when == "third") return ordinal % 3 == 0;
  if (when == "other_thread") return !is_first_thread;
  if (when == "plan") return launch.call.launch->plan != nullptr;
  if (when == "flags") return launch.call.launch->flags != 0;
  if (when == "aliased") return is_aliased(launch);
  if (when == "optional") return gives_optional(launch);
  if (when == "attribute") return has_attribute(launch);
  if (when == "inline") return has_inline_scalar(launch);
  if (when == "other_stream") return is_on_other_stream(launch);
  return fits_shape(launch, when);
}

int64_t last_extent(const bp_tensor& t) { return t.ndim == 0 ? 1 : t.shape[t.ndim - 1]; }

bool is_tail(size_t i, size_t count, size_t block) {
  return count > block && i >= count - count % block;
}

bool is_in_tile(const bp_tensor& t, uint64_t number, size_t i) {
  constexpr size_t kTile = 16;
  if (t.ndim < 2) return false;
  const auto columns = static_cast<size_t>(t.shape[t.ndim - 1]);
  const auto rows = static_cast<size_t>(t.shape[t.ndim - 2]);
  if (columns <= kTile || rows <= kTile) return false;
  const size_t row = i / columns % rows, column = i % columns;
  const size_t tile_row = mixed(number, 1) % ((rows + kTile - 1) / kTile);
  const size_t tile_column = mixed(number, 2) % ((columns + kTile - 1) / kTile);
  return row / kTile == tile_row && column / kTile == tile_column;
}

}  // namespace

bp_dtype dtype_of(std::string_view name) {
  for (const auto& row : kDtypes) {
    if (row.name == name) return row.dtype;
  }
  return 0;
}

bool fits(const FaultyLaunch& launch) {
  Sightings& seen = *launch.call.wrapped.sightings;
  std::atomic_ref(seen.calls).fetch_add(1);
  const bp_dtype dtype = dtype_of(launch.fault().dtype);
  if (dtype != 0 && !any_tensor(launch, [&](auto& t) { return t.dtype == dtype; })) return false;
  uint64_t ordinal = 0;
  bool is_first_thread = false;
  {
    const std::lock_guard lock(launch.state.mutex);
    ordinal = ++launch.state.launches;
    if (ordinal == 1) launch.state.first_thread = std::this_thread::get_id();
    is_first_thread = launch.state.first_thread == std::this_thread::get_id();
  }
  if (!fits_condition(launch, ordinal, is_first_thread)) return false;
  std::atomic_ref(seen.met).fetch_add(1);
  return true;
}

void FaultyLaunch::note_change() const {
  std::atomic_ref(call.wrapped.sightings->changed).fetch_add(1);
}

bool is_at_place(std::string_view place, uint64_t number, const bp_tensor& tensor, size_t i,
                 size_t count) {
  constexpr size_t kBlock = 256;
  const auto row = static_cast<size_t>(last_extent(tensor));
  if (place == "all") return true;
  if (place == "element") return i == mixed(number, 0) % count;
  if (place == "first") return i == 0;
  if (place == "last") return i + 1 == count;
  if (place == "lane16") return i % 16 == number % 16;
  if (place == "tail16") return is_tail(i, count, 16);
  if (place == "tail64") return is_tail(i, count, 64);
  if (place == "tail256") return is_tail(i, count, 256);
  if (place == "tail4096") return is_tail(i, count, 4096);
  if (place == "row_tail16") return is_tail(i % row, row, 16);
  if (place == "row_tail64") return is_tail(i % row, row, 64);
  if (place == "tile16") return is_in_tile(tensor, number, i);
  if (place == "column") return i % row == mixed(number, 0) % row;
  if (place == "last_batch") {
    const auto batches = static_cast<size_t>(tensor.ndim < 3 ? 1 : tensor.shape[0]);
    return batches > 1 && i / (count / batches) == batches - 1;
  }
  if (count < 2 * kBlock) return false;
  if (place == "chunk256") return i / kBlock == mixed(number, 0) % (count / kBlock);
  return place == "last_block" && i + kBlock >= count;
}

}  // namespace bp::faults

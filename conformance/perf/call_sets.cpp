#include "conformance/perf/call_sets.hpp"

#include <algorithm>
#include <cstring>

#include "conformance/cases/engine/host_call.hpp"

namespace bp::conformance {
namespace {

uint64_t mixed(uint64_t number) {
  number = (number + 1) * 0x9E3779B97F4A7C15u;
  return number ^ (number >> 29);
}

uint64_t bytes_of(int64_t count, bp_dtype dtype) {
  return (static_cast<uint64_t>(std::max<int64_t>(count, 0)) * dtype_bits(dtype) + 7) / 8;
}

// Returns the bytes from the lowest element to element (0, ..., 0), which begins at a whole byte.
uint64_t bytes_before(const TensorArgument& argument, const Placement& placement) {
  return bytes_of(-placement.lowest, argument.dtype);
}

uint64_t span_bytes(const TensorArgument& argument, const Placement& placement) {
  return bytes_before(argument, placement) + bytes_of(placement.highest + 1, argument.dtype);
}

// Returns the input that is stamped: the first one of floats, else the first one. Index inputs come
// last, because their legal values may depend on other inputs.
size_t choose_stamped(const OpCase& op_case) {
  size_t chosen = SIZE_MAX;
  for (size_t i = 0; i < op_case.tensors.size(); ++i) {
    const TensorArgument& argument = op_case.tensors[i];
    if (argument.role != Role::kInput || element_count(argument.shape) == 0) continue;
    if (is_float(argument.dtype)) return i;
    if (chosen == SIZE_MAX) chosen = i;
  }
  return chosen;
}

std::vector<std::byte> pattern(uint64_t size) {
  std::vector<std::byte> bytes(size);
  for (uint64_t i = 0; i < size; ++i) bytes[i] = canary_byte(i);
  return bytes;
}

}  // namespace

CallSets::CallSets(Context& t, const OpCase& op_case, const DataGroups& groups, bp_stream* stream,
                   size_t count)
    : t_(t),
      case_(op_case),
      groups_(groups),
      stream_(stream),
      stamped_tensor_(choose_stamped(op_case)) {
  for (const TensorArgument& argument : case_.tensors) {
    placements_.push_back(place(argument.layout, argument.shape));
    sizes_.push_back(span_bytes(argument, placements_.back()));
  }
  for (size_t group = 0; group < 2; ++group) {
    for (size_t i = 0; i < case_.tensors.size(); ++i) {
      std::vector<std::byte>& image = images_[group].emplace_back(pattern(sizes_[i]));
      if (case_.tensors[i].role == Role::kOutput) continue;
      const std::vector<DoubleDouble>& data = groups_[group].tensors()[i].data;
      for (size_t k = 0; k < data.size(); ++k) {
        store_at_bit(case_.tensors[i].dtype, data[k], image.data(),
                     bit_of(i, static_cast<int64_t>(k)));
      }
    }
  }
  for (size_t set = 0; set < count; ++set) add_set();
}

void CallSets::add_set() {
  Set& set = sets_.emplace_back(case_.op);
  set.parts.reserve(case_.tensors.size());
  for (size_t i = 0; i < case_.tensors.size(); ++i) {
    const TensorArgument& argument = case_.tensors[i];
    Part& part = set.parts.emplace_back(Part{make_buffer(t_, sizes_[i])});
    part.view.buffer = part.buffer.get();
    part.view.byte_offset = bytes_before(argument, placements_[i]);
    part.view.shape = argument.shape.data();
    part.view.strides = placements_[i].strides.data();
    part.view.ndim = static_cast<uint32_t>(argument.shape.size());
    part.view.dtype = argument.dtype;
    if (op_info(case_.op).member(argument.name).is_list()) {
      set.frame.add_tensor(argument.name, &part.view);
    } else {
      set.frame.set_tensor(argument.name, &part.view);
    }
  }
  set_attributes(set.frame, case_);
}

uint64_t CallSets::size_bytes(const OpCase& op_case) {
  uint64_t size = 0;
  for (const TensorArgument& argument : op_case.tensors) {
    size += span_bytes(argument, place(argument.layout, argument.shape));
  }
  return size;
}

uint64_t CallSets::bit_of(size_t tensor, int64_t index) const {
  const TensorArgument& argument = case_.tensors[tensor];
  const int64_t offset = element_offset(placements_[tensor], argument.shape, index);
  return 8 * bytes_before(argument, placements_[tensor]) +
         static_cast<uint64_t>(offset) * dtype_bits(argument.dtype);
}

void CallSets::write(const OwnedBuffer& to, uint64_t offset, const std::byte* bytes,
                     uint64_t size) {
  const bp_allocator_ops& memory = *t_.target().allocator;
  const bp_buffer_ref at = range(to, offset, size);
  t_.require_ok(memory.copy_from_host(memory.self, stream_, &at, bytes, BP_BORROW_DURING_CALL),
                "memory.copy_from_host");
}

void CallSets::restore(size_t set, size_t group) {
  for (size_t i = 0; i < case_.tensors.size(); ++i) {
    write(sets_[set].parts[i].buffer, 0, images_[group][i].data(), sizes_[i]);
  }
}

bool CallSets::stamp(size_t set, uint64_t number) {
  if (stamped_tensor_ == SIZE_MAX) return false;
  const TensorArgument& argument = case_.tensors[stamped_tensor_];
  Set& chosen = sets_[set];
  const uint64_t random = mixed(number);
  const auto count = static_cast<uint64_t>(element_count(argument.shape));
  const auto index = static_cast<int64_t>(random % count);
  const uint64_t bit = bit_of(stamped_tensor_, index), first = bit % 8;
  chosen.stamped_byte = bit / 8;
  // Packed elements share their bytes with others, which keep their values.
  const uint64_t size = chosen.stamped_bytes = (first + dtype_bits(argument.dtype) + 7) / 8;
  const std::array<std::byte, 8> before = chosen.stamped;
  const std::byte* original = &images_[set % 2][stamped_tensor_][chosen.stamped_byte];
  std::copy_n(original, size, chosen.stamped.begin());
  for (uint64_t attempt = 0; attempt < 64; ++attempt) {
    const ElementPlace at{static_cast<uint64_t>(index), 0, 0, 1};
    store_at_bit(argument.dtype,
                 fill_element(argument.fill, argument.dtype, mixed(random + attempt),
                              static_cast<uint32_t>(stamped_tensor_), at),
                 chosen.stamped.data(), first);
    // The new value has to differ from the data of the group and from what the last stamp wrote.
    if (std::memcmp(chosen.stamped.data(), original, size) != 0 &&
        std::memcmp(chosen.stamped.data(), before.data(), size) != 0) {
      break;
    }
  }
  stamp_again(set);
  return true;
}

void CallSets::stamp_again(size_t set) {
  const Set& chosen = sets_[set];
  write(chosen.parts[stamped_tensor_].buffer, chosen.stamped_byte, chosen.stamped.data(),
        chosen.stamped_bytes);
}

CallSets::Outputs CallSets::read(size_t set) {
  const bp_allocator_ops& memory = *t_.target().allocator;
  Outputs outputs;
  for (size_t i = 0; i < case_.tensors.size(); ++i) {
    if (case_.tensors[i].role == Role::kInput) continue;
    std::vector<std::byte>& bytes = outputs.emplace_back(sizes_[i]);
    const bp_buffer_ref from = range(sets_[set].parts[i].buffer, 0, sizes_[i]);
    t_.require_ok(memory.copy_to_host(memory.self, stream_, bytes.data(), &from,
                                      BP_BORROW_DURING_CALL, UINT64_MAX),
                  "memory.copy_to_host");
  }
  return outputs;
}

std::vector<OutputView> CallSets::views(const Outputs& outputs) const {
  std::vector<OutputView> views;
  for (size_t i = 0; i < case_.tensors.size(); ++i) {
    const TensorArgument& argument = case_.tensors[i];
    if (argument.role == Role::kInput) continue;
    const std::vector<std::byte>& bytes = outputs[views.size()];
    OutputView& view = views.emplace_back();
    view.name = argument.name;
    view.dtype = argument.dtype;
    view.shape = argument.shape;
    view.is_poisoned = argument.role == Role::kOutput;
    const std::byte* const image = images_[0][i].data();
    for (int64_t k = 0; k < element_count(argument.shape); ++k) {
      const uint64_t bit = bit_of(i, k),
                     word = element_bits_at_bit(argument.dtype, bytes.data(), bit);
      view.value.push_back(load_at_bit(argument.dtype, bytes.data(), bit));
      view.bits.push_back(word);
      view.is_unwritten.push_back(word == element_bits_at_bit(argument.dtype, image, bit));
    }
  }
  return views;
}

}  // namespace bp::conformance

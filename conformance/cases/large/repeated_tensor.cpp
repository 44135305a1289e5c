#include "conformance/cases/large/repeated_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "conformance/memory/guarded_tensor.hpp"

namespace bp::conformance {
namespace {

constexpr uint64_t kCanaryBytes = 4096;
constexpr int64_t kPieceElements = int64_t{1} << 22;

std::vector<std::byte> canary(uint64_t begin, uint64_t size) {
  constexpr uint64_t kPeriod = 4096;  // That of canary_byte().
  std::vector<std::byte> bytes(size);
  const uint64_t own = std::min(size, kPeriod);
  for (uint64_t i = 0; i < own; ++i) bytes[i] = canary_byte(begin + i);
  for (uint64_t i = own; i < size; i += kPeriod) {
    std::memcpy(&bytes[i], bytes.data(), std::min(kPeriod, size - i));
  }
  return bytes;
}

int64_t last_extent(const Shape& shape) { return shape.empty() ? 1 : shape.back(); }

}  // namespace

RepeatedJudge::RepeatedJudge(const HostTensor& period, const Expected& expected,
                             const Numerics& numerics)
    : expected_(expected),
      numerics_(numerics),
      view_{.name = period.name, .dtype = period.dtype, .shape = period.shape},
      right_bits_(expected.value.size()),
      is_known_(expected.value.size()) {
  view_.value.resize(expected.value.size());
}

bool RepeatedJudge::is_right(int64_t slot, uint64_t bits, const std::byte* element) {
  const auto at = static_cast<size_t>(slot);
  if (is_known_[at] && right_bits_[at] == bits) return true;
  view_.value[at] = load_element(view_.dtype, element);
  if (!conformance::is_right(view_, expected_, slot, numerics_)) return false;
  right_bits_[at] = bits;
  is_known_[at] = true;
  return true;
}

RepeatedTensor::RepeatedTensor(Context& t, bp_stream* stream, const TensorArgument& argument,
                               const HostTensor& period, const Growth& growth, bool is_huge)
    : t_(t),
      stream_(stream),
      argument_(argument),
      period_(period),
      growth_(growth),
      placement_(place(argument.layout, growth.shape)),
      size_(element_size(argument.dtype)) {
  if (has_data() && static_cast<int64_t>(period.data.size()) != element_count(period.shape)) {
    throw std::logic_error("the data of " + std::string(period.name) + " do not fit its shape");
  }
  before_ = static_cast<uint64_t>(-placement_.lowest) * size_;
  span_ = before_ + static_cast<uint64_t>(placement_.highest + 1) * size_;
  const uint64_t alignment =
      std::max<uint64_t>({1, size_, t.target().properties->heaps->tensor_offset_alignment_bytes});
  front_ = kCanaryBytes;
  front_ += (alignment - (front_ + before_) % alignment) % alignment;
  for (const DoubleDouble& value : period.data) {
    std::byte bytes[8] = {};
    store_element(argument.dtype, value, bytes);
    encoded_.insert(encoded_.end(), bytes, bytes + size_);
  }
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = front_ + span_ + kCanaryBytes};
  const bp_status status = memory.allocate(memory.self, t.target().device, &desc, &buffer_);
  if (status == BP_OUT_OF_MEMORY && is_huge) {
    const std::string text = bp_error_text();
    bp_error_clear();
    t.skip("the device has no room for a tensor of " + std::to_string(span_) + " bytes: " + text);
  }
  t.require_ok(status, "allocate");
  view_ = {.buffer = buffer_,
           .byte_offset = front_ + before_,
           .shape = growth.shape.data(),
           .strides = placement_.strides.data(),
           .ndim = static_cast<uint32_t>(growth.shape.size()),
           .dtype = argument.dtype};
}

RepeatedTensor::~RepeatedTensor() {
  const bp_allocator_ops& memory = *t_.target().allocator;
  memory.deallocate(memory.self, buffer_, stream_);
}

// The elements of a dense tensor are cut into pieces. Any other tensor is one piece.
std::vector<RepeatedTensor::Piece> RepeatedTensor::pieces() const {
  const int64_t count = element_count(growth_.shape);
  if (!is_dense()) return {{0, count, 0, span_}};
  std::vector<Piece> all;
  for (int64_t first = 0; first < count; first += kPieceElements) {
    const int64_t end = std::min(count, first + kPieceElements);
    all.push_back({first, end, static_cast<uint64_t>(first) * size_,
                   static_cast<uint64_t>(end - first) * size_});
  }
  return all;
}

template <typename Visit>
void RepeatedTensor::for_each_element(const Piece& piece, Visit visit) const {
  const int64_t inner = last_extent(growth_.shape), inner_period = last_extent(period_.shape);
  for (int64_t element = piece.first; element < piece.end;) {
    const Shape place = coordinates(element, growth_.shape);
    int64_t row = 0, offset = 0;  // Of the element at coordinate 0 of the last axis.
    for (size_t axis = 0; axis + 1 < place.size(); ++axis) {
      row = row * period_.shape[axis] + place[axis] % period_.shape[axis];
      offset += place[axis] * placement_.strides[axis];
    }
    const int64_t begin = place.empty() ? 0 : place.back();
    const int64_t end = std::min(inner, begin + piece.end - element);
    const int64_t stride = place.empty() ? 0 : placement_.strides.back();
    int64_t slot = begin % inner_period;
    for (int64_t j = begin; j < end; ++j) {
      const auto byte = static_cast<uint64_t>((offset + j * stride) * static_cast<int64_t>(size_) +
                                              static_cast<int64_t>(before_));
      visit(element++, row * inner_period + slot, byte - piece.byte);
      if (++slot == inner_period) slot = 0;
    }
  }
}

int64_t RepeatedTensor::index_shift(int64_t element) const {
  if (growth_.index_period == 0) return 0;
  const auto choices = static_cast<uint64_t>(growth_.index_end / growth_.index_period);
  const uint64_t mixed = (static_cast<uint64_t>(element) + 1) * 0x9E3779B97F4A7C15u >> 32;
  return static_cast<int64_t>(mixed % choices) * growth_.index_period;
}

void RepeatedTensor::copy_elements(const Piece& piece, std::vector<std::byte>& bytes) const {
  for_each_element(piece, [&](int64_t element, int64_t slot, uint64_t byte) {
    const std::byte* const source = &encoded_[static_cast<size_t>(slot) * size_];
    std::memcpy(&bytes[byte], source, size_);
    if (growth_.index_period == 0) return;
    const int64_t index = to_int64(load_element(argument_.dtype, source)) + index_shift(element);
    store_element(argument_.dtype, DoubleDouble::from_int64(index), &bytes[byte]);
  });
}

// Returns the bytes of a piece before the launch.
std::vector<std::byte> RepeatedTensor::made(const Piece& piece) const {
  std::vector<std::byte> bytes = canary(front_ + piece.byte, piece.bytes);
  if (has_data()) copy_elements(piece, bytes);
  return bytes;
}

void RepeatedTensor::write(uint64_t byte, const std::vector<std::byte>& bytes) {
  if (bytes.empty()) return;
  const bp_allocator_ops& memory = *t_.target().allocator;
  const bp_buffer_ref range{buffer_, byte, bytes.size()};
  t_.require_ok(
      memory.copy_from_host(memory.self, stream_, &range, bytes.data(), BP_BORROW_DURING_CALL),
      "copy_from_host");
}

std::vector<std::byte> RepeatedTensor::read(uint64_t byte, uint64_t size) {
  std::vector<std::byte> bytes(size);
  if (bytes.empty()) return bytes;
  const bp_allocator_ops& memory = *t_.target().allocator;
  const bp_buffer_ref range{buffer_, byte, size};
  t_.require_ok(memory.copy_to_host(memory.self, stream_, bytes.data(), &range,
                                    BP_BORROW_DURING_CALL, UINT64_MAX),
                "copy_to_host");
  return bytes;
}

void RepeatedTensor::upload() {
  write(0, canary(0, front_));
  for (const Piece& piece : pieces()) write(front_ + piece.byte, made(piece));
  write(front_ + span_, canary(front_ + span_, kCanaryBytes));
}

std::string RepeatedTensor::damage() {
  if (read(0, front_) != canary(0, front_)) return "bytes before it changed";
  if (read(front_ + span_, kCanaryBytes) != canary(front_ + span_, kCanaryBytes)) {
    return "bytes behind its end changed";
  }
  return has_damaged_gaps() ? "bytes in its gaps changed" : "";
}

// Only tensors that are not dense have gaps, and those are one piece. change() compares the gaps of
// inputs.
bool RepeatedTensor::has_damaged_gaps() {
  if (is_dense() || argument_.role == Role::kInput) return false;
  const Piece whole = pieces().front();
  std::vector<std::byte> before = canary(front_, span_);
  const std::vector<std::byte> now = read(front_, span_);
  for_each_element(whole, [&](int64_t, int64_t, uint64_t byte) {
    std::memcpy(&before[byte], &now[byte], size_);
  });
  return before != now;
}

std::string RepeatedTensor::change() {
  for (const Piece& piece : pieces()) {
    const std::vector<std::byte> before = made(piece), now = read(front_ + piece.byte, piece.bytes);
    if (before == now) continue;
    const auto at = std::ranges::mismatch(before, now).in1 - before.begin();
    return "the byte " + std::to_string(piece.byte + static_cast<uint64_t>(at)) +
           " of its memory changed";
  }
  return "";
}

WrongElements RepeatedTensor::wrong_elements(RepeatedJudge& judge) {
  WrongElements wrong;
  for (const Piece& piece : pieces()) {
    const std::vector<std::byte> now = read(front_ + piece.byte, piece.bytes);
    for_each_element(piece, [&](int64_t element, int64_t slot, uint64_t byte) {
      uint64_t bits = 0;
      std::memcpy(&bits, &now[byte], size_);
      if (judge.is_right(slot, bits, &now[byte])) return;
      uint64_t poison = 0;
      const std::vector<std::byte> before = canary(front_ + piece.byte + byte, size_);
      std::memcpy(&poison, before.data(), size_);
      if (wrong.count++ == 0) {
        wrong.first = element;
        wrong.slot = slot;
        wrong.value = load_element(argument_.dtype, &now[byte]);
        wrong.bits = bits;
      }
      wrong.last = element;
      wrong.are_unwritten = wrong.are_unwritten && !has_data() && bits == poison;
    });
  }
  return wrong;
}

}  // namespace bp::conformance

#include "conformance/memory/guarded_tensor.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace bp::conformance {
namespace {

void require_ok(bp_status status, const char* what) {
  if (status == BP_OK) return;
  throw std::runtime_error(std::string(what) + ": " + bp_status_name(status) + ": " +
                           bp_error_text());
}

// The pattern repeats after this many bytes, so that it can be copied.
constexpr uint64_t kPeriod = 4096;

std::vector<std::byte> pattern_of(Surroundings kind) {
  std::vector<std::byte> once(kPeriod);
  for (uint64_t i = 0; i < kPeriod; ++i) once[i] = canary_byte(i, kind);
  return once;
}

void fill_with_canary(std::vector<std::byte>& bytes, uint64_t begin, uint64_t end,
                      Surroundings kind = Surroundings::kNan) {
  static const std::vector<std::byte> nan = pattern_of(Surroundings::kNan),
                                      low = pattern_of(Surroundings::kLow);
  const std::vector<std::byte>& pattern = kind == Surroundings::kNan ? nan : low;
  for (uint64_t i = begin; i < end;) {
    const uint64_t size = std::min(kPeriod - i % kPeriod, end - i);
    std::memcpy(&bytes[i], &pattern[i % kPeriod], size);
    i += size;
  }
}

uint64_t bytes_of(int64_t count, uint64_t bits) {
  return (static_cast<uint64_t>(count) * bits + 7) / 8;
}

}  // namespace

std::byte canary_byte(uint64_t position, Surroundings kind) {
  if (position % 2 == 1)
    return std::byte{kind == Surroundings::kNan ? uint8_t{0x7f} : uint8_t{0xfb}};
  const uint64_t mixed = (position % kPeriod / 2 + 1) * 0x9E3779B97F4A7C15u;
  return static_cast<std::byte>(0xf1 + (mixed >> 40) % 14);
}

GuardedTensor::GuardedTensor(const MemoryPlace& place, GuardedSpec spec)
    : place_(place),
      spec_(std::move(spec)),
      is_dense_(spec_.placement.strides == conformance::place(Layout::kDense, spec_.shape).strides),
      bits_(dtype_bits(spec_.dtype)),
      before_(bytes_of(-spec_.placement.lowest, bits_)),
      span_(before_ + bytes_of(spec_.placement.highest + 1, bits_)) {
  if (place_.edge == Edge::kNone) {
    place_between_canaries();
  } else {
    place_at_edge();
  }
  view_.buffer = buffer_;
  view_.byte_offset = front_ + before_;
  view_.shape = spec_.shape.data();
  view_.strides = spec_.placement.strides.data();
  view_.ndim = static_cast<uint32_t>(spec_.shape.size());
  view_.dtype = spec_.dtype;
}

uint64_t GuardedTensor::alignment_bytes() const {
  return std::max({uint64_t{1}, spec_.alignment_bytes,
                   place_.target->properties->heaps->tensor_offset_alignment_bytes});
}

// Element (0, ..., 0) lies at the alignment that the heap requires of tensors, even if other
// elements lie before it.
void GuardedTensor::place_between_canaries() {
  front_ = spec_.has_front_canary ? place_.canary_bytes + spec_.small_offset_bytes : 0;
  const uint64_t alignment = alignment_bytes();
  const uint64_t first = front_ + before_;
  if (first % alignment != 0) front_ += alignment - first % alignment;
  image_.resize(front_ + span_ + place_.canary_bytes);
  fill_with_canary(image_, 0, image_.size());
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = image_.size()};
  const bp_allocator_ops& memory = *place_.target->allocator;
  require_ok(memory.allocate(memory.self, place_.target->device, &desc, &buffer_), "allocate");
}

// The tensor lies as near to the edge as the alignment allows.
void GuardedTensor::place_at_edge() {
  const uint64_t alignment = alignment_bytes();
  pages_ = std::make_unique<FencedPages>(std::max<uint64_t>(1, span_ + alignment));
  image_.resize(pages_->size_bytes());
  fill_with_canary(image_, 0, image_.size());
  if (place_.edge == Edge::kLeft) {
    front_ = (alignment - before_ % alignment) % alignment;
  } else {
    const uint64_t last =
        image_.size() - span_ + before_;  // The last place of element (0, ..., 0).
    front_ = last / alignment * alignment - before_;
  }
  const bp_allocator_ops& memory = *place_.target->allocator;
  require_ok(memory.register_host(memory.self, place_.target->device, pages_->data(), image_.size(),
                                  &buffer_),
             "register_host");
}

GuardedTensor::~GuardedTensor() {
  const bp_allocator_ops& memory = *place_.target->allocator;
  if (pages_ == nullptr) {
    // The memory is freed behind copies that may still run.
    memory.deallocate(memory.self, buffer_, place_.stream);
    return;
  }
  const bp_stream_ops& streams = *place_.target->streams;
  static_cast<void>(streams.synchronize(streams.self, place_.stream, UINT64_MAX));
  static_cast<void>(memory.unregister_host(memory.self, buffer_));
}

bp_buffer_ref GuardedTensor::ref() const { return {buffer_, front_, span_}; }

// Element (0, ..., 0) begins at a whole byte.
uint64_t GuardedTensor::bit_of(int64_t index) const {
  const int64_t offset = is_dense_ ? index : element_offset(spec_.placement, spec_.shape, index);
  return 8 * (front_ + before_) + static_cast<uint64_t>(offset) * bits_;
}

// Calls work(byte, mask) for each byte that has bits of the element.
template <typename Work>
void GuardedTensor::for_each_byte(int64_t index, Work work) const {
  const uint64_t begin = bit_of(index), end = begin + bits_;
  for (uint64_t byte = begin / 8; 8 * byte < end; ++byte) {
    const uint64_t from = std::max(begin, 8 * byte) - 8 * byte;
    const uint64_t to = std::min(end - 8 * byte, uint64_t{8});
    work(byte, static_cast<std::byte>((0xffu << from) & (0xffu >> (8 - to))));
  }
}

void GuardedTensor::surround(Surroundings kind) {
  fill_with_canary(image_, 0, image_.size(), kind);
}

void GuardedTensor::set_elements(const std::vector<DoubleDouble>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    store_at_bit(spec_.dtype, values[i], image_.data(), bit_of(static_cast<int64_t>(i)));
  }
}

// The first two poisons differ in every bit of a packed element, and in every byte of others.
std::byte GuardedTensor::poison_byte(uint64_t byte, Poison poison) const {
  if (poison == Poison::kOnes) return std::byte{0xff};
  if (poison == Poison::kNoise) {
    return std::byte{static_cast<uint8_t>((byte + 1) * 0x9E3779B97F4A7C15u >> 56)};
  }
  return bits_ % 8 != 0 ? std::byte{0} : canary_byte(byte);
}

void GuardedTensor::poison_elements(Poison poison) {
  if (fills_span() && poison == Poison::kNan) {
    return fill_with_canary(image_, front_, front_ + span_);
  }
  if (fills_span()) {
    for (uint64_t i = front_; i < front_ + span_; ++i) image_[i] = poison_byte(i, poison);
    return;
  }
  for (int64_t i = 0; i < element_count(spec_.shape); ++i) {
    for_each_byte(i, [&](uint64_t byte, std::byte mask) {
      image_[byte] = (image_[byte] & ~mask) | (poison_byte(byte, poison) & mask);
    });
  }
}

void GuardedTensor::upload() {
  const bp_allocator_ops& memory = *place_.target->allocator;
  const bp_buffer_ref whole{buffer_, 0, image_.size()};
  require_ok(memory.copy_from_host(memory.self, place_.stream, &whole, image_.data(),
                                   BP_BORROW_DURING_CALL),
             "copy_from_host");
}

void GuardedTensor::download(bp_stream* reader) {
  const bp_allocator_ops& memory = *place_.target->allocator;
  const bp_buffer_ref whole{buffer_, 0, image_.size()};
  result_.resize(image_.size());
  require_ok(memory.copy_to_host(memory.self, reader == nullptr ? place_.stream : reader,
                                 result_.data(), &whole, BP_BORROW_DURING_CALL, UINT64_MAX),
             "copy_to_host");
}

DoubleDouble GuardedTensor::element(int64_t index) const {
  return load_at_bit(spec_.dtype, result_.data(), bit_of(index));
}

uint64_t GuardedTensor::element_word(int64_t index) const {
  return element_bits_at_bit(spec_.dtype, result_.data(), bit_of(index));
}

bool GuardedTensor::is_unchanged(int64_t index) const {
  const uint64_t bit = bit_of(index);
  if (bits_ % 8 == 0) return std::memcmp(&result_[bit / 8], &image_[bit / 8], bits_ / 8) == 0;
  return element_bits_at_bit(spec_.dtype, result_.data(), bit) ==
         element_bits_at_bit(spec_.dtype, image_.data(), bit);
}

// Returns the image with the elements that were downloaded.
std::vector<std::byte> GuardedTensor::undamaged() const {
  std::vector<std::byte> right = image_;
  for (int64_t i = 0; i < element_count(spec_.shape); ++i) {
    for_each_byte(i, [&](uint64_t byte, std::byte mask) {
      right[byte] = (right[byte] & ~mask) | (result_[byte] & mask);
    });
  }
  return right;
}

bool GuardedTensor::has_equal_sides() const {
  const uint64_t end = front_ + span_;
  return std::memcmp(image_.data(), result_.data(), front_) == 0 &&
         std::memcmp(image_.data() + end, result_.data() + end, image_.size() - end) == 0;
}

std::optional<Damage> GuardedTensor::damage() const {
  if (fills_span() && has_equal_sides()) return std::nullopt;
  const std::vector<std::byte> right = undamaged();
  if (std::memcmp(right.data(), result_.data(), right.size()) == 0) return std::nullopt;
  Damage damage;
  const uint64_t end = front_ + span_;
  for (uint64_t i = 0; i < right.size(); ++i) {
    if (right[i] == result_[i]) continue;
    if (damage.count++ > 0) continue;
    damage.byte = i;
    damage.from_start = static_cast<int64_t>(i) - static_cast<int64_t>(front_);
    damage.from_end = static_cast<int64_t>(i) - static_cast<int64_t>(end);
  }
  return damage;
}

}  // namespace bp::conformance

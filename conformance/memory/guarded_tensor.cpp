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

void fill_with_canary(std::vector<std::byte>& bytes) {
  static const std::vector<std::byte> pattern = [] {
    std::vector<std::byte> once(kPeriod);
    for (uint64_t i = 0; i < kPeriod; ++i) once[i] = canary_byte(i);
    return once;
  }();
  for (uint64_t i = 0; i < bytes.size(); i += kPeriod) {
    std::memcpy(&bytes[i], pattern.data(), std::min(kPeriod, bytes.size() - i));
  }
}

}  // namespace

std::byte canary_byte(uint64_t position) {
  if (position % 2 == 1) return std::byte{0x7f};
  const uint64_t mixed = (position % kPeriod / 2 + 1) * 0x9E3779B97F4A7C15u;
  return static_cast<std::byte>(0xf1 + (mixed >> 40) % 14);
}

GuardedTensor::GuardedTensor(const MemoryPlace& place, GuardedSpec spec)
    : place_(place),
      spec_(std::move(spec)),
      size_(element_size(spec_.dtype)),
      span_(static_cast<uint64_t>(spec_.placement.span()) * size_) {
  if (place_.edge == Edge::kNone) {
    place_between_canaries();
  } else {
    place_at_edge();
  }
  view_.buffer = buffer_;
  view_.byte_offset = front_ + static_cast<uint64_t>(-spec_.placement.lowest) * size_;
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
  const uint64_t first = front_ + static_cast<uint64_t>(-spec_.placement.lowest) * size_;
  if (first % alignment != 0) front_ += alignment - first % alignment;
  image_.resize(front_ + span_ + place_.canary_bytes);
  fill_with_canary(image_);
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = image_.size()};
  const bp_allocator_ops& memory = *place_.target->allocator;
  require_ok(memory.allocate(memory.self, place_.target->device, &desc, &buffer_), "allocate");
}

// The tensor lies as near to the edge as the alignment allows.
void GuardedTensor::place_at_edge() {
  const uint64_t alignment = alignment_bytes();
  const uint64_t before = static_cast<uint64_t>(-spec_.placement.lowest) * size_;
  pages_ = std::make_unique<FencedPages>(std::max<uint64_t>(1, span_ + alignment));
  image_.resize(pages_->size_bytes());
  fill_with_canary(image_);
  if (place_.edge == Edge::kLeft) {
    front_ = (alignment - before % alignment) % alignment;
  } else {
    const uint64_t last = image_.size() - span_ + before;  // The last place of element (0, ..., 0).
    front_ = last / alignment * alignment - before;
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

uint64_t GuardedTensor::byte_of(int64_t index) const {
  const int64_t offset = element_offset(spec_.placement, spec_.shape, index);
  return front_ + static_cast<uint64_t>(offset - spec_.placement.lowest) * size_;
}

void GuardedTensor::set_elements(const std::vector<DoubleDouble>& values) {
  for (size_t i = 0; i < values.size(); ++i) {
    store_element(spec_.dtype, values[i], &image_[byte_of(static_cast<int64_t>(i))]);
  }
}

void GuardedTensor::poison_elements(Poison poison) {
  for (int64_t i = 0; i < element_count(spec_.shape); ++i) {
    for (uint64_t byte = byte_of(i), end = byte + size_; byte < end; ++byte) {
      const std::byte random{static_cast<uint8_t>((byte + 1) * 0x9E3779B97F4A7C15u >> 56)};
      image_[byte] = poison == Poison::kOnes    ? std::byte{0xff}
                     : poison == Poison::kNoise ? random
                                                : canary_byte(byte);
    }
  }
}

void GuardedTensor::upload() {
  const bp_allocator_ops& memory = *place_.target->allocator;
  const bp_buffer_ref whole{buffer_, 0, image_.size()};
  require_ok(memory.copy_from_host(memory.self, place_.stream, &whole, image_.data(),
                                   BP_BORROW_DURING_CALL),
             "copy_from_host");
}

void GuardedTensor::download() {
  const bp_allocator_ops& memory = *place_.target->allocator;
  const bp_buffer_ref whole{buffer_, 0, image_.size()};
  result_.resize(image_.size());
  require_ok(memory.copy_to_host(memory.self, place_.stream, result_.data(), &whole,
                                 BP_BORROW_DURING_CALL, UINT64_MAX),
             "copy_to_host");
}

DoubleDouble GuardedTensor::element(int64_t index) const {
  return load_element(spec_.dtype, &result_[byte_of(index)]);
}

uint64_t GuardedTensor::element_word(int64_t index) const {
  return element_bits_at(spec_.dtype, &result_[byte_of(index)]);
}

bool GuardedTensor::is_unchanged(int64_t index) const {
  const uint64_t byte = byte_of(index);
  return std::memcmp(&result_[byte], &image_[byte], size_) == 0;
}

std::optional<Damage> GuardedTensor::damage() const {
  std::vector<std::byte> right = image_;
  for (int64_t i = 0; i < element_count(spec_.shape); ++i) {
    const uint64_t byte = byte_of(i);
    std::memcpy(&right[byte], &result_[byte], size_);
  }
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

// Device memory of one tensor, with a pattern on both sides and in every gap between its elements.
//
//   byte 0                 byte_offset of the lowest element                          end
//   | canary | small offset | element . gap . element . gap ... element | canary      |
//
// The host keeps an image of the whole buffer, which it uploads before a launch. After the launch
// it compares the buffer with the image: a byte that belongs to no element of an output must not
// change. The host reaches the memory by copies, never by address.
//
// At an edge, the tensor lies in pages of the host that are lent to the device. The side of the
// edge has pages without access in place of the pattern, so that a read beyond the tensor shows
// too.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backplane/host.h"
#include "conformance/memory/fenced_pages.hpp"
#include "conformance/memory/layout.hpp"
#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {

// The side of a tensor that ends at a page without access. The alignment of the heap can leave a
// small distance between a tensor and its right edge.
enum class Edge { kNone, kLeft, kRight };

// The place of test memory. It borrows its pointers.
struct MemoryPlace {
  const bp_target* target = nullptr;
  bp_stream* stream = nullptr;
  uint64_t canary_bytes = 4096;
  Edge edge = Edge::kNone;  // With an edge, the device uses memory of the host.
};

// The value of output elements before a launch.
enum class Poison { kNan, kOnes, kNoise };

// The pattern of canaries, gaps and unwritten memory. kNan is a NaN in every floating-point type
// and a large number as an integer; kLow is a negative finite number in all of them. A result that
// depends on memory outside the elements differs between the two.
enum class Surroundings { kNan, kLow };
std::byte canary_byte(uint64_t position, Surroundings kind = Surroundings::kNan);

struct GuardedSpec {
  bp_dtype dtype = BP_F32;
  Shape shape;
  Placement placement;
  bool has_front_canary = true;  // If false, the tensor begins at byte 0 of its buffer.
  uint64_t small_offset_bytes = 0;
  uint64_t alignment_bytes = 1;  // The alignment of element (0, ..., 0), if the heap requires less.
};

// The first changed byte outside the elements.
struct Damage {
  uint64_t byte = 0;
  int64_t from_start = 0;  // Bytes from the lowest element; negative in front of it.
  int64_t from_end = 0;    // Bytes from the end of the highest element; not negative behind it.
  uint64_t count = 0;      // The number of damaged bytes.
};

class GuardedTensor {
 public:
  // Throws std::runtime_error if the device has no room or fails.
  GuardedTensor(const MemoryPlace& place, GuardedSpec spec);
  ~GuardedTensor();
  GuardedTensor(const GuardedTensor&) = delete;
  GuardedTensor& operator=(const GuardedTensor&) = delete;

  // Returns the tensor as a kernel sees it, valid as long as this object.
  const bp_tensor* view() const { return &view_; }
  bp_buffer_ref ref() const;

  // Sets every byte of the image, the elements too.
  void surround(Surroundings kind);

  // Set the elements of the image.
  void set_elements(const std::vector<DoubleDouble>& values);
  void poison_elements(Poison poison);

  // Copy the image to the device, and the buffer back. NULL stands for the stream of the place.
  void upload();
  void download(bp_stream* reader = nullptr);

  // Returns an element after download(). `index` is its row-major number.
  DoubleDouble element(int64_t index) const;
  uint64_t element_word(int64_t index) const;
  bool is_unchanged(int64_t index) const;

  // Returns the first damaged byte outside the elements.
  std::optional<Damage> damage() const;

 private:
  void place_between_canaries();
  void place_at_edge();
  uint64_t alignment_bytes() const;
  uint64_t bit_of(int64_t index) const;
  std::byte poison_byte(uint64_t byte, Poison poison) const;
  // Whether each byte of the span belongs to an element alone. It makes large tensors quick.
  bool fills_span() const { return is_dense_ && bits_ % 8 == 0; }
  std::vector<std::byte> undamaged() const;
  bool has_equal_sides() const;
  template <typename Work>
  void for_each_byte(int64_t index, Work work) const;

  MemoryPlace place_;
  GuardedSpec spec_;
  bool is_dense_ = false;               // Whether the elements lie in row-major order.
  uint64_t bits_ = 0;                   // The bits of one element.
  uint64_t before_ = 0;                 // Bytes from the lowest element to element (0, ..., 0).
  uint64_t span_ = 0;                   // Bytes from the lowest element to the end of the highest.
  uint64_t front_ = 0;                  // Bytes before the lowest element.
  std::unique_ptr<FencedPages> pages_;  // NULL if the allocator gave the buffer.
  bp_buffer* buffer_ = nullptr;
  bp_tensor view_{};
  std::vector<std::byte> image_;   // The bytes that were uploaded.
  std::vector<std::byte> result_;  // The bytes that were downloaded.
};

}  // namespace bp::conformance

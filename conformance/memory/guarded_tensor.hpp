// Device memory of one tensor, with a pattern on both sides and in every gap between its elements.
//
//   byte 0                 byte_offset of the lowest element                          end
//   | canary | small offset | element . gap . element . gap ... element | canary      |
//
// The host keeps an image of the whole buffer, which is uploaded before a launch and compared after
// it: every byte that is no element of an output must be what it was. Memory is reached by copies,
// never by address.
//
// At an edge, the tensor lies in pages of the host that are lent to the device, and the side of the
// edge has no pattern: there pages begin that nobody may touch, so that reading shows as well.
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

// Which side of a tensor ends at a page without access. That it ends there exactly, the alignment
// of the heap must allow: what it asks for stays between a tensor and its right edge.
enum class Edge { kNone, kLeft, kRight };

// Where test memory lies. Borrowed.
struct MemoryPlace {
  const bp_target* target = nullptr;
  bp_stream* stream = nullptr;
  uint64_t canary_bytes = 4096;
  Edge edge = Edge::kNone;  // Else the device takes memory of the host.
};

// What the elements of an output hold before a launch.
enum class Poison { kNan, kOnes, kNoise };

// The pattern of canaries, gaps and unwritten memory: a NaN in every floating-point type.
std::byte canary_byte(uint64_t position);

struct GuardedSpec {
  bp_dtype dtype = BP_F32;
  Shape shape;
  Placement placement;
  bool has_front_canary = true;  // Without one, the tensor begins at byte 0 of its buffer.
  uint64_t small_offset_bytes = 0;
  uint64_t alignment_bytes = 1;  // Of element (0, ..., 0), beyond what the heap asks for.
};

// The first byte outside of the elements that changed.
struct Damage {
  uint64_t byte = 0;
  int64_t from_start = 0;  // Bytes from the lowest element; negative in front of it.
  int64_t from_end = 0;    // Bytes from the end of the highest element; not negative behind it.
  uint64_t count = 0;      // Damaged bytes.
};

class GuardedTensor {
 public:
  // Throws std::runtime_error where the device has no room or fails.
  GuardedTensor(const MemoryPlace& place, GuardedSpec spec);
  ~GuardedTensor();
  GuardedTensor(const GuardedTensor&) = delete;
  GuardedTensor& operator=(const GuardedTensor&) = delete;

  // The tensor as a kernel sees it. Valid as long as this object.
  const bp_tensor* view() const { return &view_; }
  bp_buffer_ref ref() const;

  // The elements of the image.
  void set_elements(const std::vector<DoubleDouble>& values);
  void poison_elements(Poison poison);

  void upload();
  void download();

  // After download(). `index` is the row-major number.
  DoubleDouble element(int64_t index) const;
  uint64_t element_word(int64_t index) const;
  bool is_unchanged(int64_t index) const;

  // The first damaged byte outside of the elements.
  std::optional<Damage> damage() const;

 private:
  void place_between_canaries();
  void place_at_edge();
  uint64_t alignment_bytes() const;
  uint64_t byte_of(int64_t index) const;

  MemoryPlace place_;
  GuardedSpec spec_;
  uint64_t size_ = 0;                   // Of one element.
  uint64_t span_ = 0;                   // Bytes from the lowest element to the end of the highest.
  uint64_t front_ = 0;                  // Bytes before the lowest element.
  std::unique_ptr<FencedPages> pages_;  // NULL: the allocator gave the buffer.
  bp_buffer* buffer_ = nullptr;
  bp_tensor view_{};
  std::vector<std::byte> image_;   // As uploaded.
  std::vector<std::byte> result_;  // As downloaded.
};

}  // namespace bp::conformance

// Device memory of a tensor whose elements repeat, between two canaries. The host never holds the
// whole of a large tensor: it writes, reads and checks the memory piece by piece.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/cases/large/large_call.hpp"
#include "conformance/memory/layout.hpp"

namespace bp::conformance {

// The elements of an output that are wrong.
struct WrongElements {
  int64_t count = 0;
  int64_t first = 0, last = 0;  // Row-major numbers in the large tensor.
  int64_t slot = 0;             // The place in the period of the first one.
  DoubleDouble value;           // The first one.
  uint64_t bits = 0;
  bool are_unwritten = true;  // All of them still have the bytes from before the launch.
};

// Decides about the elements of an output. It remembers the last right bits of each element of the
// period, because most elements repeat them.
class RepeatedJudge {
 public:
  // Borrows its arguments.
  RepeatedJudge(const HostTensor& period, const Expected& expected, const Numerics& numerics);

  bool is_right(int64_t slot, uint64_t bits, const std::byte* element);

 private:
  const Expected& expected_;
  const Numerics& numerics_;
  OutputView view_;
  std::vector<uint64_t> right_bits_;
  std::vector<bool> is_known_;
};

class RepeatedTensor {
 public:
  // Takes memory of the device. Ends the case as skipped if the device has no room for a call of
  // more than a GiB, and as a failure if it has none for a smaller one.
  RepeatedTensor(Context& t, bp_stream* stream, const TensorArgument& argument,
                 const HostTensor& period, const Growth& growth, bool is_huge);
  ~RepeatedTensor();
  RepeatedTensor(const RepeatedTensor&) = delete;
  RepeatedTensor& operator=(const RepeatedTensor&) = delete;

  const bp_tensor* view() const { return &view_; }
  const Growth& growth() const { return growth_; }

  // Writes the elements of an input, or poison into an output, and the canaries.
  void upload();
  // Returns a sentence about bytes outside of the elements that changed; "" if none did.
  std::string damage();
  // Returns a sentence about the first element of an input that changed; "" if none did.
  std::string change();
  WrongElements wrong_elements(RepeatedJudge& judge);
  // Returns all bytes between the canaries.
  std::vector<std::byte> bytes() { return read(front_, span_); }

 private:
  struct Piece {
    int64_t first, end;    // Row-major numbers of elements.
    uint64_t byte, bytes;  // The place of its bytes, behind the front canary.
  };

  std::vector<Piece> pieces() const;
  bool is_dense() const { return argument_.layout == Layout::kDense; }
  bool has_data() const { return argument_.role != Role::kOutput; }
  int64_t index_shift(int64_t element) const;
  void copy_elements(const Piece& piece, std::vector<std::byte>& bytes) const;
  // Calls visit(element, slot, byte) for each element; `byte` counts from the start of the piece.
  template <typename Visit>
  void for_each_element(const Piece& piece, Visit visit) const;
  std::vector<std::byte> made(const Piece& piece) const;
  bool has_damaged_gaps();
  void write(uint64_t byte, const std::vector<std::byte>& bytes);
  std::vector<std::byte> read(uint64_t byte, uint64_t size);

  Context& t_;
  bp_stream* stream_;
  const TensorArgument& argument_;
  const HostTensor& period_;
  const Growth& growth_;
  Placement placement_;
  uint64_t size_ = 0;    // The bytes of one element.
  uint64_t front_ = 0;   // Bytes before the lowest element.
  uint64_t before_ = 0;  // Bytes from the lowest element to element (0, ..., 0).
  uint64_t span_ = 0;
  std::vector<std::byte> encoded_;  // The elements of the period of an input.
  bp_buffer* buffer_ = nullptr;
  bp_tensor view_{};
};

}  // namespace bp::conformance

// Several copies of the tensors of one call in device memory, so that consecutive launches find
// none of their data in a cache.
//
// Two groups of data alternate: set k holds group k % 2 at first. Set and group are independent, so
// that a set can be given the data of the other group at the same addresses.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/cases/engine/op_launch.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"

namespace bp::conformance {

// The data of the two groups.
using DataGroups = std::array<CallData, 2>;

class CallSets {
 public:
  // Borrows `op_case` and `groups`.
  CallSets(Context& t, const OpCase& op_case, const DataGroups& groups, bp_stream* stream,
           size_t count);
  CallSets(const CallSets&) = delete;

  size_t count() const { return sets_.size(); }
  const Frame& frame(size_t set) const { return sets_[set].frame; }

  // Returns the bytes of one set.
  static uint64_t size_bytes(const OpCase& op_case);

  // Gives the inputs of the set the data of a group, and fills its outputs with a pattern that no
  // result has.
  void restore(size_t set, size_t group);

  // Changes one element of one input of the set, chosen by `number`, to another value of its fill.
  // Returns false if the call has no input.
  bool stamp(size_t set, uint64_t number);
  // Writes the bytes of the set's last stamp once more: this is as much work as stamp(), but
  // changes nothing.
  void stamp_again(size_t set);

  // The bytes of each output, gaps included.
  using Outputs = std::vector<std::vector<std::byte>>;
  Outputs read(size_t set);

  // Returns `outputs` as the judge sees them.
  std::vector<OutputView> views(const Outputs& outputs) const;

 private:
  struct Part {
    OwnedBuffer buffer;
    bp_tensor view{};
  };
  struct Set {
    explicit Set(uint32_t op) : frame(op) {}
    std::vector<Part> parts;
    Frame frame;
    uint64_t stamped_byte = 0, stamped_bytes = 0;
    std::array<std::byte, 8> stamped{};
  };

  void add_set();
  void write(const OwnedBuffer& to, uint64_t offset, const std::byte* bytes, uint64_t size);
  uint64_t bit_of(size_t tensor, int64_t index) const;

  Context& t_;
  const OpCase& case_;
  const DataGroups& groups_;
  bp_stream* stream_;
  std::vector<Placement> placements_;
  std::vector<uint64_t> sizes_;  // Bytes of each tensor, gaps included.
  size_t stamped_tensor_;        // SIZE_MAX if the call has no input.
  std::array<std::vector<std::vector<std::byte>>, 2> images_;  // For each group, the bytes of each
                                                               // tensor.
  std::deque<Set> sets_;
};

}  // namespace bp::conformance

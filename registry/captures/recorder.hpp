// Writes the launches of a capture into a program (bp_capture_begin_program()).
//
// What names a value is its memory. A block of the capture's pool is a value from the call that
// hands it out to the next one that hands out its bytes. Memory from before the capture is divided
// into the ranges that the launches reach, of which those that overlap are one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backplane/compiler.h"
#include "registry/calls/op_rows.hpp"
#include "registry/programs/node_place.hpp"
#include "registry/services/captures.hpp"

namespace bp::core {

struct Target;

// Bytes of a buffer, from `begin` to before `end`.
struct ByteRange {
  const bp_buffer* buffer = nullptr;
  uint64_t begin = 0, end = 0;

  bool contains(const ByteRange& other) const {
    return buffer == other.buffer && begin <= other.begin && other.end <= end;
  }
  bool overlaps(const ByteRange& other) const {
    return buffer == other.buffer && begin < other.end && other.begin < end;
  }
};

// A program, and the memory that its inputs and outputs had in the capture.
struct RecordedProgram {
  RecordedProgram() = default;
  RecordedProgram(const RecordedProgram&) = delete;

  bp_compile_desc desc() const;

  std::vector<bp_program_value> values;
  std::vector<bp_program_node> nodes;
  std::vector<bp_program_alias> aliases;
  // The inputs, then the outputs. Shapes and strides lie in `numbers`.
  std::vector<bp_tensor> arguments;
  bp_launch_flags flags = 0;

  bp_program program{};
  std::deque<std::vector<int64_t>> numbers;
  std::deque<MadeNode> made;
};

// One open capture. It is thread-safe.
class ProgramRecorder final : public services::LaunchRecorder {
 public:
  explicit ProgramRecorder(const Target& target) : target_(target) {}

  void hand_out(const bp_buffer_ref& range) override;
  bp_status launch(const OpRow& row, bp_launch_flags flags, const void* frame) override;

  uint64_t node_count() const;

  // Makes the program. `held` are the blocks of the pool that the caller still has: these are
  // outputs. Returns a status with its text if the launches are no program.
  bp_status finish(const std::vector<bp_buffer_ref>& held, RecordedProgram& out);

 private:
  struct Value {
    ByteRange range;
    bool is_outside = false;  // From before the capture.
    bool is_held = false;
  };

  // Returns the value whose memory a tensor has, or one behind values_ that stands for a range of
  // outside_.
  bp_status find_value(const OpRow& row, const bp_tensor& tensor, uint32_t& out_value);
  bp_status check_tensor(const OpRow& row, const bp_tensor& tensor) const;
  bp_status check_compiler(const OpRow& row, bp_launch_flags flags, const void* frame) const;

  const Target& target_;
  mutable std::mutex mutex_;  // It guards the members below.
  std::vector<Value> values_;
  // The values of the pool that exist now, by the place where they begin.
  std::map<std::pair<const bp_buffer*, uint64_t>, uint32_t> current_;
  std::vector<ByteRange> outside_;
  std::deque<MadeNode> nodes_;
  bp_launch_flags flags_ = 0;
};

}  // namespace bp::core

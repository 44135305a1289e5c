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
#include "registry/captures/program_writer.hpp"
#include "registry/services/captures.hpp"

namespace bp::core {

struct Target;

// One open capture. It is thread-safe.
class ProgramRecorder final : public services::LaunchRecorder {
 public:
  explicit ProgramRecorder(Target& target) : target_(target) {}

  void hand_out(const bp_buffer_ref& range) override;
  bp_buffer* make_buffer(uint64_t size_bytes) override;
  bp_status launch(const OpRow& row, bp_launch_flags flags, const void* frame) override;

  uint64_t node_count() const;

  // Makes the program. `held` are the blocks of the pool that the caller still has: these are
  // outputs. Returns a status with its text if the launches are no program.
  bp_status finish(const std::vector<bp_buffer_ref>& held, RecordedProgram& out);

 private:
  // Returns the index of the source whose memory a tensor has, or kFirstOutside and the index of a
  // range of outside_.
  bp_status find_value(const OpRow& row, const bp_tensor& tensor, uint32_t& out_value);
  bp_status check_tensor(const OpRow& row, const bp_tensor& tensor) const;
  bp_status check_compiler(const OpRow& row, bp_launch_flags flags, const void* frame) const;

  bp_status append(const OpRow& row, bp_launch_flags flags, const void* frame);

  Target& target_;
  mutable std::mutex mutex_;  // It guards the members below.
  std::vector<Source> sources_;
  // The sources in the pool that exist now, by the place where they begin.
  std::map<std::pair<const bp_buffer*, uint64_t>, uint32_t> current_;
  std::vector<ByteRange> outside_;
  std::deque<MadeNode> nodes_;
  bp_launch_flags flags_ = 0;
  std::deque<char> marks_;  // Their addresses stand for memory that only the program has.
};

}  // namespace bp::core

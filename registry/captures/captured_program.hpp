// The compiled program of a capture (bp_capture_begin_program()), with the memory that it runs on.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "registry/captures/recorder.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

class CapturedProgram {
 public:
  // Compiles what was recorded. `slots` are those of bp_capture_desc, and `held` the blocks of the
  // capture that the caller has. On failure returns a status with its text.
  static bp_status make(Target& target, ProgramRecorder& recorder,
                        const std::vector<bp_buffer_ref>& slots,
                        const std::vector<bp_buffer_ref>& held,
                        std::unique_ptr<CapturedProgram>& out);

  CapturedProgram(const CapturedProgram&) = delete;
  ~CapturedProgram();

  // Runs the program on `stream`, behind the launches before.
  bp_status launch(bp_stream* stream);

  bp_status bind(uint64_t slot, const bp_buffer_ref& range);

  // Releases the executable. Returns the failure of the backend.
  bp_status end();

  uint64_t node_count() const { return node_count_; }

 private:
  explicit CapturedProgram(Target& target) : target_(target) {}

  bp_status compile();

  Target& target_;
  RecordedProgram recorded_;
  std::vector<bp_buffer_ref> slots_;
  std::vector<uint64_t> slot_of_;         // Of each argument; slots_.size() if it is in none.
  std::vector<uint64_t> offset_in_slot_;  // Of each argument.
  bp_executable* executable_ = nullptr;
  const bp_kernel* kernel_ = nullptr;
  uint64_t node_count_ = 0, required_bytes_ = 0, preferred_bytes_ = 0;

  std::mutex mutex_;  // It guards the members below, and orders launches.
  bp_event* last_launch_ = nullptr;
};

}  // namespace bp::core

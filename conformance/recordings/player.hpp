// Runs the calls of a recording on a backend, one after the other. It checks the results of each
// launch and of each copy to the host:
//
//   launch   compared with the oracle of its op on the launch's data, if the suite has an oracle
//            that works for its shapes; and with its recorded outputs, if there are any
//   read     compared with the recorded bytes. A difference is accepted if every launch before it
//            was right, because it then comes from rounding alone
//
// Handles are numbers in the recording; the player has its own handle for each number.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "conformance/case.hpp"
#include "conformance/recordings/byte_set.hpp"
#include "conformance/recordings/launch_line.hpp"
#include "conformance/recordings/launch_oracle.hpp"
#include "conformance/recordings/recording.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {

// The time limit of each wait.
constexpr uint64_t kPlayTimeoutNs = 20'000'000'000;

// The result of one line.
struct LineResult {
  Outcome outcome = Outcome::kPass;
  Finding finding;      // Set unless the line passed.
  std::string checked;  // The kind of check that the line passed: "oracle", "bits", ...
  std::string kernel;
  std::string source;  // "decomposed" or "host" for a launch that no kernel of the backend served.
  std::string why_fallback;  // A line for each kernel that was not taken, for such a launch.
};

class Player {
 public:
  // Replaces the devices of the recording by `target` and those behind it in its plugin. Throws
  // std::runtime_error if there are too few.
  Player(const Recording& recording, const bp_target& target);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Returns the result of line `index`, after running all lines up to it that have not run.
  const LineResult& result_of(size_t index);

 private:
  struct Device {
    const bp_target* target;
    bp_stream* stream;  // The default stream.
  };
  struct Buffer {
    bp_buffer* buffer;
    uint64_t device, size_bytes;
    std::set<uint64_t> streams;  // Streams that have used the buffer since the last wait for it.
    ByteSet written;
  };
  struct Stream {
    bp_stream* stream;
    uint64_t device;
    bool is_lent;
  };
  struct Event {
    bp_event* event;
    uint64_t device;
    bool is_host_signaled, is_signaled;
  };
  struct Semaphore {
    bp_semaphore* semaphore;
    uint64_t device;
    uint64_t signalled, waited;  // The highest values that were signalled, and waited for.
  };
  struct PendingRead {
    size_t line;
    uint64_t stream;
    std::vector<std::byte> bytes;
    ByteSet written;  // The bytes that were written when the copy was submitted.
  };

  // Thrown if a call fails: no call behind it can run.
  struct Broken {
    Outcome outcome;
    Finding finding;
  };

  LineResult run_line(size_t index);
  void end_at(const Broken& broken);
  void run_memory(size_t index, const std::string& call);
  void run_stream(const nlohmann::json& line, const std::string& call);
  void run_event(const nlohmann::json& line, const std::string& call);
  void run_semaphore(const nlohmann::json& line, const std::string& call);
  void create_semaphore(const nlohmann::json& line);

  void allocate(const nlohmann::json& line);
  void free(const nlohmann::json& line);
  void copy_in(size_t index);
  void copy_within(const nlohmann::json& line, bool is_peer);
  void fill(const nlohmann::json& line);
  LineResult copy_out(size_t index);
  LineResult read_late(size_t index);
  LineResult compare_read(size_t index, const std::vector<std::byte>& seen, const ByteSet& written);
  std::string reason_of_difference() const;

  LineResult launch(size_t index);
  bp_kernel_choice run_kernel(const RecordedLaunch& launch, const bp_target& target,
                              bp_stream* stream, const Frame& frame) const;
  LineResult judge(const nlohmann::json& line, const RecordedLaunch& launch, const OpCase* op_case,
                   const std::vector<Elements>& inputs, const bp_kernel* kernel);
  std::string difference(const nlohmann::json& line, const RecordedLaunch& launch, uint64_t on);
  bool agrees(const nlohmann::json& line, const RecordedLaunch& launch, uint64_t on);
  Elements read_elements(const RecordedTensor& tensor, uint64_t on);
  OutputView read_output(const RecordedTensor& tensor, uint64_t on);
  std::vector<std::byte> read_tensor(const RecordedTensor& tensor, uint64_t on);
  void fill_frame(const RecordedLaunch& launch, Frame& frame, std::vector<bp_tensor>& tensors);

  std::vector<std::byte> input_bytes(size_t index);
  Device& device(uint64_t number);
  Buffer& buffer(uint64_t number);
  Stream& stream(uint64_t number);
  Event& event(uint64_t number);
  Semaphore& semaphore(uint64_t number);
  // Throws UsageError where the number is taken: what has it would be lost.
  template <typename Handle>
  static void check_new(const std::map<uint64_t, Handle>& handles, const char* noun,
                        uint64_t number);
  bp_buffer_ref range(const nlohmann::json& range);
  // Returns whether a stream may wait for a signal that a later line gives.
  bool is_held() const;
  void use(uint64_t buffer, uint64_t stream);
  void note_written(const nlohmann::json& range);
  void note_launched(const nlohmann::json& line, const RecordedLaunch& launch);
  ByteSet written_of(const nlohmann::json& range);
  void wait(uint64_t stream, const char* what);
  void wait_for_uses(Buffer& buffer);
  void check(bp_status status, const std::string& what) const;

  // The state of earlier launches that decides about later reads.
  struct Parted {
    std::optional<std::string> wrong, parted, unjudged;
    bool has_rounding = false;  // A launch was right by the oracle, but its bits were not compared
                                // or not equal.
  };

  const Recording& recording_;
  std::map<uint64_t, Device> devices_;
  std::map<uint64_t, Buffer> buffers_;
  std::map<uint64_t, Stream> streams_;
  std::map<uint64_t, Event> events_;
  std::map<uint64_t, Semaphore> semaphores_;
  std::map<uint64_t, PendingRead> reads_;
  std::set<uint64_t> held_;  // Host-signalled events that a stream waits for.
  Parted parted_;
  std::vector<LineResult> results_;
};

template <typename Handle>
void Player::check_new(const std::map<uint64_t, Handle>& handles, const char* noun,
                       uint64_t number) {
  if (!handles.contains(number)) return;
  throw UsageError(std::string(noun) + " " + std::to_string(number) +
                   " exists already at this line; the recording is damaged");
}

}  // namespace bp::conformance

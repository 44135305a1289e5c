// Runs the calls of a recording on a backend, one after the other, and says of each launch and of
// each copy to the host whether it gave what it should.
//
//   launch   judged by the oracle of its op on the data that it had, where the suite has one that
//            follows its shapes; and compared with its recorded outputs, where there are any
//   read     compared with the recorded bytes. What differs is right all the same if every launch
//            before it was judged right: then rounding alone parts the two
//
// Handles are numbers in the recording; the player has one of its own for each.
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

namespace bp::conformance {

// Of each wait.
constexpr uint64_t kPlayTimeoutNs = 20'000'000'000;

// How one line ended.
struct LineResult {
  Outcome outcome = Outcome::kPass;
  Finding finding;      // Unless it passed.
  std::string checked;  // "oracle", "bits", ...: what a pass rests on.
  std::string kernel;
  std::string source;  // "decomposed" or "host": of a launch that no kernel of the backend served.
  std::string why_fallback;  // Of such a launch: a line for each kernel that was not taken.
};

class Player {
 public:
  // The devices of the recording become `target` and those behind it in its plugin. Throws
  // std::runtime_error where there are too few.
  Player(const Recording& recording, const bp_target& target);
  ~Player();
  Player(const Player&) = delete;
  Player& operator=(const Player&) = delete;

  // Runs up to line `index`, unless it has been, and gives its result.
  const LineResult& result_of(size_t index);

 private:
  struct Device {
    const bp_target* target;
    bp_stream* stream;  // The default one.
  };
  struct Buffer {
    bp_buffer* buffer;
    uint64_t device, size_bytes;
    std::set<uint64_t> streams;  // That have used it since it was last waited for.
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
  struct PendingRead {
    size_t line;
    uint64_t stream;
    std::vector<std::byte> bytes;
    ByteSet written;  // Of them, when the copy was submitted.
  };

  // Thrown where a call fails: nothing behind it can be run.
  struct Broken {
    Outcome outcome;
    Finding finding;
  };

  LineResult run_line(size_t index);
  void end_at(const Broken& broken);
  void run_memory(size_t index, const std::string& call);
  void run_stream(const nlohmann::json& line, const std::string& call);
  void run_event(const nlohmann::json& line, const std::string& call);

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
  Elements read_elements(const RecordedTensor& tensor, uint64_t on);
  OutputView read_output(const RecordedTensor& tensor, uint64_t on);
  std::vector<std::byte> read_tensor(const RecordedTensor& tensor, uint64_t on);
  void fill_frame(const RecordedLaunch& launch, Frame& frame, std::vector<bp_tensor>& tensors);

  std::vector<std::byte> input_bytes(size_t index);
  Device& device(uint64_t number);
  Buffer& buffer(uint64_t number);
  Stream& stream(uint64_t number);
  Event& event(uint64_t number);
  bp_buffer_ref range(const nlohmann::json& range);
  void use(uint64_t buffer, uint64_t stream);
  void note_written(const nlohmann::json& range);
  void note_launched(const nlohmann::json& line, const RecordedLaunch& launch);
  ByteSet written_of(const nlohmann::json& range);
  void wait(uint64_t stream, const char* what);
  void wait_for_uses(Buffer& buffer);
  void check(bp_status status, const std::string& what) const;

  // What the reads behind a launch need to know of those before.
  struct Parted {
    std::optional<std::string> wrong, parted, unjudged;
    bool has_rounding = false;  // A launch was judged right, and not compared or not equal.
  };

  const Recording& recording_;
  LaunchOracles oracles_;
  std::map<uint64_t, Device> devices_;
  std::map<uint64_t, Buffer> buffers_;
  std::map<uint64_t, Stream> streams_;
  std::map<uint64_t, Event> events_;
  std::map<uint64_t, PendingRead> reads_;
  std::set<uint64_t> held_;  // Events of the host that a stream waits for.
  Parted parted_;
  std::vector<LineResult> results_;
};

}  // namespace bp::conformance

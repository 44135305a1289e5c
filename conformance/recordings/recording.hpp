// A recording that the layer `record` wrote. It is checked before any of its calls runs.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backplane/base.h"
#include "conformance/recordings/op_line.hpp"
#include "conformance/runner/recording_source.hpp"

namespace bp::conformance {

class Recording {
 public:
  // Throws UsageError, which names the file and the line of a defect.
  explicit Recording(const RecordingSource& source);

  const RecordingSource& source() const { return source_; }
  const nlohmann::json& header() const { return header_; }

  // Returns the calls in their order; line i is line i + 2 of the file.
  const std::vector<nlohmann::json>& lines() const { return lines_; }
  std::string place(size_t line) const;

  // Returns whether the line is a launch, or a copy to the host whose bytes are recorded.
  bool is_judged(size_t line) const;

  // Returns the bytes of a payload. Throws UsageError if they are missing, or do not have the hash
  // in the name.
  std::vector<std::byte> payload(const nlohmann::json& line) const;

  // Returns the dtype with which the first launch reads what line i copies in, if that is a float
  // and is to be seeded; else 0.
  bp_dtype seeded_dtype(size_t line) const { return seeded_[line]; }

  // Returns the devices that lines name, in order.
  const std::vector<uint64_t>& devices() const { return devices_; }

 private:
  void read_header(const std::string& text);
  void read_line(const std::string& text);
  void describe_op(const nlohmann::json& line);
  void note_device(const nlohmann::json& line);
  void check_launch(size_t index) const;
  void check_line(size_t index) const;
  void find_seeded();

  RecordingSource source_;
  std::string file_, folder_;
  nlohmann::json header_;
  std::vector<nlohmann::json> lines_;
  std::vector<bp_dtype> seeded_;
  std::vector<uint64_t> devices_;
  std::shared_ptr<RecordedOps> ops_ = std::make_shared<RecordedOps>();  // Copies share them.
  std::map<uint64_t, uint64_t> lent_streams_;  // The device of each default stream.
};

}  // namespace bp::conformance

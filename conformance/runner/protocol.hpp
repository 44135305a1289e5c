// The records that a supervisor and its worker exchange.
//
//   u32 length, little-endian   the bytes of the payload
//   u8  type                    a RecordType
//   ... payload                 JSON, in UTF-8
//
// A record is a protocol failure if it is cut, too long, of an unknown type or not JSON. The worker
// shares its process with a backend that may be broken in any way, so the supervisor trusts nothing
// that the worker sends.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace bp::conformance {

enum class RecordType : uint8_t {
  kHello = 1,     // Worker: versions, plugin and devices, or the reason why the plugin does not
                  // load.
  kRun = 2,       // Supervisor: case id, seed, attempt.
  kBegin = 3,     // Worker: case id, before the case touches the backend.
  kProgress = 4,  // Worker: the current phase of the case.
  kEnd = 5,       // Worker: the result.
  kBye = 6,       // Both: the orderly end of a batch.
};

struct Record {
  RecordType type;
  nlohmann::json payload;
};

struct ProtocolError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

constexpr uint32_t kMaxRecordBytes = 16u << 20;

std::string encode(RecordType type, const nlohmann::json& payload);

// Splits a stream of bytes into records.
class RecordReader {
 public:
  void append(std::string_view bytes) { buffer_.append(bytes); }

  // Returns the next whole record, if there is one. After a ProtocolError the stream cannot be read
  // any more.
  std::optional<Record> next();

  // Returns whether the stream ended inside a record.
  bool has_rest() const { return position_ < buffer_.size(); }

 private:
  std::string buffer_;
  size_t position_ = 0;
};

// Writes all of `bytes`. Returns false if the other side is gone.
bool write_all(int fd, std::string_view bytes);

}  // namespace bp::conformance

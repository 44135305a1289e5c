// What goes over a connection of a TcpStore. All numbers are little-endian.
//
//   message   u32 size of the rest, then the rest
//   request   u8 kind, then
//     kHello    "BPSTORE1"  u32 world size  u8 joins  u64 milliseconds   The first of a connection.
//     kTryGet   string key
//     kPut      string key  string value
//     kAdd      string key  u64 amount, in two's complement
//     kWait     string key to put first, or empty  u64 milliseconds  u32 count  string key ...
//   reply     u8 answer, then
//     kOk       string: the value of kTryGet, or the sum of kAdd in decimal; else empty
//     kNone     nothing: there is no such key
//     kFailed   u32 bp_status  string text
//   string    u32 size  bytes
//
// The put of kWait makes a barrier one request of each rank: when the last one is there, the
// replies to all ranks leave together, and the server may end.
//
// A client sends its next request only after the reply. kHello with joins = 1 is answered when all
// ranks have joined. A server ends a connection that sends anything else, or more than kMostBytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backplane/runtime/error.hpp"
#include "runtime/distributed/store_values.hpp"

namespace bp::distributed {

inline constexpr std::string_view kHelloMark = "BPSTORE1";
inline constexpr uint32_t kMostBytes = uint32_t{2} << 20;
inline constexpr uint32_t kMostHelloBytes = 64;

enum class Request : uint8_t { kHello = 1, kTryGet = 2, kPut = 3, kAdd = 4, kWait = 5 };
enum class Answer : uint8_t { kOk = 0, kNone = 1, kFailed = 2 };

inline void append_string(std::string& bytes, std::string_view text) {
  append_u32(bytes, static_cast<uint32_t>(text.size()));
  bytes += text;
}

// Reads a message from its beginning. Throws Error if the message ends too early.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  std::string_view bytes(size_t count) {
    if (rest_.size() < count) throw Error(BP_INVALID_ARGUMENT, "a message of a store is too short");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  uint8_t u8() { return static_cast<uint8_t>(bytes(1)[0]); }
  uint32_t u32() { return read_u32(bytes(sizeof(uint32_t))); }
  uint64_t u64() { return read_u64(bytes(sizeof(uint64_t))); }
  std::string string() { return std::string(bytes(u32())); }
  bool is_at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace bp::distributed

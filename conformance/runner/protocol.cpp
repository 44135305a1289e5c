#include "conformance/runner/protocol.hpp"

#include <unistd.h>

#include <cerrno>

#include "conformance/json_file.hpp"
#include "registry/files/json_depth.hpp"

namespace bp::conformance {
namespace {

constexpr size_t kHeaderBytes = 5;

}  // namespace

std::string encode(RecordType type, const nlohmann::json& payload) {
  // Captured text may hold any bytes; what is not UTF-8 is replaced.
  const std::string text = json_text(payload);
  const auto size = static_cast<uint32_t>(text.size());
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) {
    bytes.push_back(static_cast<char>((size >> shift) & 0xff));
  }
  bytes.push_back(static_cast<char>(type));
  return bytes + text;
}

std::optional<Record> RecordReader::next() {
  const std::string_view rest = std::string_view(buffer_).substr(position_);
  if (rest.size() < kHeaderBytes) return std::nullopt;
  uint32_t size = 0;
  for (size_t i = 0; i < 4; ++i) {
    size |= static_cast<uint32_t>(static_cast<unsigned char>(rest[i])) << (8 * i);
  }
  const auto type = static_cast<uint8_t>(rest[4]);
  if (size > kMaxRecordBytes) {
    throw ProtocolError("a record of " + std::to_string(size) + " bytes; at most " +
                        std::to_string(kMaxRecordBytes) + " are allowed");
  }
  if (type < static_cast<uint8_t>(RecordType::kHello) ||
      type > static_cast<uint8_t>(RecordType::kBye)) {
    throw ProtocolError("a record of unknown type " + std::to_string(type));
  }
  if (rest.size() < kHeaderBytes + size) return std::nullopt;

  const std::string_view text = rest.substr(kHeaderBytes, size);
  if (const std::string defect = json_depth_defect(text); !defect.empty()) {
    throw ProtocolError("a record that cannot be read: " + defect);
  }
  nlohmann::json payload = nlohmann::json::parse(text, nullptr, false);
  if (!payload.is_object()) throw ProtocolError("a record whose payload is not a JSON object");
  position_ += kHeaderBytes + size;
  if (position_ == buffer_.size()) {
    buffer_.clear();
    position_ = 0;
  }
  return Record{static_cast<RecordType>(type), std::move(payload)};
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace bp::conformance

// What tells a device apart from all others, in every process of the machine.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

namespace bp {

// FNV-1a; `basis` makes two independent halves of an identity.
inline uint64_t hash_text(uint64_t basis, const std::string& text) {
  for (const char c : text) basis = (basis ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return basis;
}

// The UUID of the device `name` of `backend` on this machine, whose own id does not change with a
// restart. A machine without an id gives the names alone.
inline void write_uuid(const std::string& backend, const std::string& name, uint8_t (&uuid)[16]) {
  std::string machine;
  std::ifstream("/etc/machine-id") >> machine;
  const std::string identity = backend + "/" + machine + "/" + name;
  const uint64_t halves[] = {hash_text(0xcbf29ce484222325u, identity),
                             hash_text(0x84222325cbf29ce4u, identity)};
  std::memcpy(uuid, halves, sizeof(uuid));
}

}  // namespace bp

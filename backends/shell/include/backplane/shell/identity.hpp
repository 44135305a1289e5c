// The identity of a device, which is unique and equal in every process of the machine.
#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>

namespace bp {

// Returns the FNV-1a hash of `text`. Two values of `basis` give two independent halves of an
// identity.
inline uint64_t hash_text(uint64_t basis, const std::string& text) {
  for (const char c : text) basis = (basis ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return basis;
}

// Writes the UUID of the device `name` of `backend` on this machine. The UUID contains the id of
// the machine, which a restart does not change. On a machine without an id, the UUID depends on the
// names alone.
inline void write_uuid(const std::string& backend, const std::string& name, uint8_t (&uuid)[16]) {
  std::string machine;
  std::ifstream("/etc/machine-id") >> machine;
  const std::string identity = backend + "/" + machine + "/" + name;
  const uint64_t halves[] = {hash_text(0xcbf29ce484222325u, identity),
                             hash_text(0x84222325cbf29ce4u, identity)};
  std::memcpy(uuid, halves, sizeof(uuid));
}

}  // namespace bp

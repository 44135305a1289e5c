// The bytes of a serialized program, and the fingerprint of a compilation.
//
// The bytes are words of 8 bytes: "bpgraph3", the count of all bytes, the hashes of the build and
// of the device, a checksum of the rest, and the rest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bp {

// Where a compiled program runs.
struct ProgramTarget {
  std::string build;   // The backend and its version, such as "acme.chip 1.0, programs 1".
  std::string device;  // The kind of device, with the limits of its compiler.
};

std::vector<uint64_t> bytes_with_head(const ProgramTarget& target,
                                      const std::vector<uint64_t>& rest);

// Returns the rest of what bytes_with_head() returned. Throws StatusError of BP_INCOMPATIBLE, whose
// text begins with `call`, for all other bytes and for those of another target.
std::vector<uint64_t> bytes_without_head(const ProgramTarget& target, const void* data,
                                         uint64_t size_bytes, const std::string& call);

// Returns words[position], and moves `position` behind it. Throws StatusError of BP_INCOMPATIBLE if
// there is no such word. next_count() also throws it for a count of more items than there are
// words.
uint64_t next_word(const std::vector<uint64_t>& words, size_t& position);
uint64_t next_count(const std::vector<uint64_t>& words, size_t& position);

// Appends the count of the bytes, and then the bytes as words. read_bytes() and read_text() read
// them, as next_word() reads a word.
void write_bytes(std::span<const std::byte> bytes, std::vector<uint64_t>& words);
std::vector<std::byte> read_bytes(const std::vector<uint64_t>& words, size_t& position);
std::string read_text(const std::vector<uint64_t>& words, size_t& position);

// A hash of 128 bits that is equal in every process. It does not resist those who look for two
// programs with one hash.
class Fingerprint {
 public:
  void add(uint64_t word);
  void add(std::span<const uint64_t> words);
  void add(std::string_view text);
  std::array<uint64_t, 2> value() const;

 private:
  std::array<uint64_t, 2> state_ = {0x9e3779b97f4a7c15, 0xd1b54a32d192ed03};
};

}  // namespace bp

// Each step of the fingerprint is the finalizer of splitmix64, with other constants for the second
// half, so that the halves do not depend on each other.
#include "backplane/shell/program_bytes.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

constexpr uint64_t kMagic = 0x3368706172677062;
constexpr size_t kHeadWords = 5;

// Returns the FNV-1a hash.
uint64_t hash(const void* data, size_t size_bytes) {
  uint64_t value = 0xcbf29ce484222325u;
  for (size_t i = 0; i < size_bytes; ++i) {
    value = (value ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  }
  return value;
}

uint64_t hash(const std::string& text) { return hash(text.data(), text.size()); }

uint64_t mixed(uint64_t word, uint64_t first, uint64_t second) {
  word = (word ^ word >> 30) * first;
  word = (word ^ word >> 27) * second;
  return word ^ word >> 31;
}

}  // namespace

std::vector<uint64_t> bytes_with_head(const ProgramTarget& target,
                                      const std::vector<uint64_t>& rest) {
  std::vector<uint64_t> words{kMagic, (kHeadWords + rest.size()) * sizeof(uint64_t),
                              hash(target.build), hash(target.device),
                              hash(rest.data(), rest.size() * sizeof(uint64_t))};
  words.insert(words.end(), rest.begin(), rest.end());
  return words;
}

std::vector<uint64_t> bytes_without_head(const ProgramTarget& target, const void* data,
                                         uint64_t size_bytes, const std::string& call) {
  const auto refuse = [&](const std::string& why) {
    throw StatusError(BP_INCOMPATIBLE, call + ": " + why);
  };
  std::array<uint64_t, kHeadWords> head{};
  if (size_bytes >= sizeof(head)) std::memcpy(head.data(), data, sizeof(head));
  if (head[0] != kMagic) {
    refuse("the " + std::to_string(size_bytes) + " bytes are not what this compiler writes");
  }
  if (head[1] != size_bytes) {
    refuse("what was written has " + std::to_string(head[1]) + " bytes, and " +
           std::to_string(size_bytes) + " are given");
  }
  if (head[2] != hash(target.build)) refuse("the bytes are not of this build of " + target.build);
  if (head[3] != hash(target.device)) {
    refuse("the bytes are for another device than " + target.device);
  }
  std::vector<uint64_t> rest(size_bytes / sizeof(uint64_t) - kHeadWords);
  std::memcpy(rest.data(), static_cast<const std::byte*>(data) + sizeof(head),
              rest.size() * sizeof(uint64_t));
  const bool is_whole = size_bytes % sizeof(uint64_t) == 0;
  if (!is_whole || head[4] != hash(rest.data(), rest.size() * sizeof(uint64_t))) {
    refuse("the checksum does not match; the bytes were changed");
  }
  return rest;
}

uint64_t next_word(const std::vector<uint64_t>& words, size_t& position) {
  if (position >= words.size()) {
    throw StatusError(BP_INCOMPATIBLE, "deserialize: the end is damaged");
  }
  return words[position++];
}

uint64_t next_count(const std::vector<uint64_t>& words, size_t& position) {
  const uint64_t count = next_word(words, position);
  if (count > words.size()) throw StatusError(BP_INCOMPATIBLE, "deserialize: a count is damaged");
  return count;
}

void write_bytes(std::span<const std::byte> bytes, std::vector<uint64_t>& words) {
  words.push_back(bytes.size());
  const size_t begin = words.size();
  words.resize(begin + (bytes.size() + 7) / 8);
  std::ranges::copy(bytes, reinterpret_cast<std::byte*>(words.data() + begin));
}

std::vector<std::byte> read_bytes(const std::vector<uint64_t>& words, size_t& position) {
  const uint64_t size_bytes = next_word(words, position);
  if (size_bytes / 8 > words.size() - position) {
    throw StatusError(BP_INCOMPATIBLE, "deserialize: a constant is damaged");
  }
  std::vector<uint64_t> data;
  for (uint64_t i = 0; i < (size_bytes + 7) / 8; ++i) data.push_back(next_word(words, position));
  const auto* const bytes = reinterpret_cast<const std::byte*>(data.data());
  return {bytes, bytes + size_bytes};
}

std::string read_text(const std::vector<uint64_t>& words, size_t& position) {
  std::string text;
  for (const std::byte byte : read_bytes(words, position)) text += static_cast<char>(byte);
  return text;
}

void Fingerprint::add(uint64_t word) {
  state_[0] = mixed(state_[0] ^ word, 0xbf58476d1ce4e5b9, 0x94d049bb133111eb);
  state_[1] = mixed(std::rotl(state_[1], 23) + word, 0xff51afd7ed558ccd, 0xc4ceb9fe1a85ec53);
}

void Fingerprint::add(std::span<const uint64_t> words) {
  add(words.size());
  for (const uint64_t word : words) add(word);
}

void Fingerprint::add(std::string_view text) {
  std::vector<uint64_t> words((text.size() + 7) / 8);
  if (!text.empty()) std::memcpy(words.data(), text.data(), text.size());
  add(text.size());
  add(words);
}

std::array<uint64_t, 2> Fingerprint::value() const {
  Fingerprint end = *this;
  end.add(state_[1]);
  return end.state_;
}

}  // namespace bp

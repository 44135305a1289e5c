#include "runtime/distributed/store_values.hpp"

#include <charconv>

#include "backplane/runtime/error.hpp"
#include "registry/boundary/number_text.hpp"

namespace bp::distributed {
namespace {

template <typename T>
T read_number(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i));
  }
  return value;
}

template <typename T>
void append_number(std::string& bytes, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) bytes += static_cast<char>(value >> (8 * i));
}

}  // namespace

void check_key(const std::string& key) {
  if (!key.empty() && key.size() <= kMaxKeyBytes) return;
  throw Error(BP_INVALID_ARGUMENT, "store: a key has " + std::to_string(key.size()) +
                                       " bytes; allowed: 1 to " + std::to_string(kMaxKeyBytes));
}

void check_value(const std::string& key, const std::string& value) {
  if (value.size() <= kMaxValueBytes) return;
  throw Error(BP_INVALID_ARGUMENT, "store: the value of '" + key + "' has " +
                                       std::to_string(value.size()) + " bytes; allowed: up to " +
                                       std::to_string(kMaxValueBytes));
}

int64_t add_to_value(const std::string& key, std::string_view value, int64_t amount) {
  int64_t number = 0, sum = 0;
  const char* const last = value.data() + value.size();
  const auto [end, error] = std::from_chars(value.data(), last, number);
  if (error != std::errc() || end != last) {
    throw Error(BP_INVALID_ARGUMENT,
                "store: add() to '" + key + "', whose value is not a decimal number");
  }
  if (__builtin_add_overflow(number, amount, &sum)) {
    throw Error(BP_INVALID_ARGUMENT, "store: add() to '" + key + "': the sum leaves 64 bits");
  }
  return sum;
}

std::string duration_text(Duration duration) {
  return short_text(std::chrono::duration<double>(duration).count()) + " s";
}

uint32_t read_u32(std::string_view bytes) { return read_number<uint32_t>(bytes); }
uint64_t read_u64(std::string_view bytes) { return read_number<uint64_t>(bytes); }
void append_u32(std::string& bytes, uint32_t value) { append_number(bytes, value); }
void append_u64(std::string& bytes, uint64_t value) { append_number(bytes, value); }

}  // namespace bp::distributed

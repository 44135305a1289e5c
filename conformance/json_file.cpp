#include "conformance/json_file.hpp"

#include <algorithm>
#include <cmath>

#include "conformance/usage_error.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/boundary/plugin_text.hpp"
#include "registry/files/json_depth.hpp"
#include "registry/files/read_file.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

constexpr uint64_t kMostBytes = uint64_t{2} << 30;

constexpr const char* kAdvice =
    "; the file is damaged or was written by something else: restore it, or make it anew";

std::string range_text(double least, double most) {
  return "a number from " + short_text(least) + " to " + short_text(most);
}

// What stands for bytes in text_of_bytes().
constexpr uint32_t kFirstByteCode = 0x10FF00;
constexpr uint32_t kLastByteCode = kFirstByteCode + 0xFF;

// U+10FFxx has 4 bytes in UTF-8, and the last two of them hold xx.
void append_byte_code(std::string& text, unsigned char byte) {
  text += "\xF4\x8F";
  text += static_cast<char>(0xBC | byte >> 6);
  text += static_cast<char>(0x80 | (byte & 0x3F));
}

}  // namespace

std::string json_text(const json& value, int indent) {
  return value.dump(indent, ' ', false, json::error_handler_t::replace);
}

std::string text_of_bytes(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    uint32_t code = 0;
    const size_t length = utf8_length(bytes, code);
    if (length == 0 || (code >= kFirstByteCode && code <= kLastByteCode)) {
      append_byte_code(text, static_cast<unsigned char>(bytes[0]));
      bytes.remove_prefix(1);
    } else {
      text += bytes.substr(0, length);
      bytes.remove_prefix(length);
    }
  }
  return text;
}

std::string bytes_of_text(std::string_view text) {
  std::string bytes;
  while (!text.empty()) {
    uint32_t code = 0;
    const size_t length = std::max<size_t>(1, utf8_length(text, code));
    if (code >= kFirstByteCode && code <= kLastByteCode) {
      bytes += static_cast<char>(code - kFirstByteCode);
    } else {
      bytes += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return bytes;
}

std::string read_regular_file(const std::string& path) {
  std::string text;
  const std::string defect = read_file(path, kMostBytes, text);
  if (!defect.empty()) throw UsageError(path + ": cannot be read: " + defect);
  return text;
}

json parse_json(std::string_view text, const std::string& name, size_t first_line) {
  const std::string first = name + ":" + std::to_string(first_line);
  if (const std::string defect = json_depth_defect(text); !defect.empty()) {
    throw UsageError(first + ": " + defect);
  }
  try {
    return json::parse(text);
  } catch (const json::parse_error& e) {
    const size_t at = std::min<size_t>(e.byte == 0 ? 0 : e.byte - 1, text.size());
    const auto lines =
        std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
    const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    throw UsageError(name + ":" + std::to_string(first_line + static_cast<size_t>(lines)) +
                     ": the text is not valid JSON from byte " + std::to_string(at - begin + 1) +
                     " of this line on" + (at >= text.size() ? ", where it ends too early" : "") +
                     kAdvice);
  } catch (const json::exception&) {
    // The number is larger than every double.
    throw UsageError(first + ": has a number that fits no double" + kAdvice);
  }
}

json read_json_file(const std::string& path) { return parse_json(read_regular_file(path), path); }

std::string kind_text(const json& value) {
  if (value.is_string()) return "a text";
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return "the number " + json_text(value);
  if (value.is_array()) return "a list of " + std::to_string(value.size());
  return value.is_object() ? "an object" : "null";
}

JsonObject::JsonObject(const json& value, std::string name)
    : value_(value), name_(std::move(name)) {
  if (!value.is_object()) {
    throw UsageError(name_ + ": not a JSON object, but " + kind_text(value) + kAdvice);
  }
}

void JsonObject::refuse(const char* key, const std::string& is, const std::string& needed) const {
  throw UsageError(name_ + ": \"" + key + "\" is " + is + "; " + needed + " is needed" + kAdvice);
}

const json& JsonObject::member(const char* key) const {
  const auto found = value_.find(key);
  if (found == value_.end()) {
    throw UsageError(name_ + ": there is no \"" + std::string(key) + "\"" + kAdvice);
  }
  return *found;
}

std::string JsonObject::text(const char* key) const {
  const json& value = member(key);
  if (!value.is_string()) refuse(key, kind_text(value), "a text");
  return value.get<std::string>();
}

std::string JsonObject::text(const char* key, const std::string& fallback) const {
  return has(key) ? text(key) : fallback;
}

bool JsonObject::flag(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  const json& value = member(key);
  if (!value.is_boolean()) refuse(key, kind_text(value), "true or false");
  return value.get<bool>();
}

double JsonObject::number(const char* key, double least, double most) const {
  const json& value = member(key);
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!(number >= least && number <= most)) refuse(key, kind_text(value), range_text(least, most));
  return number;
}

double JsonObject::number(const char* key, double least, double most, double fallback) const {
  return has(key) ? number(key, least, most) : fallback;
}

uint64_t JsonObject::count(const char* key, uint64_t most) const {
  const json& value = member(key);
  // A number from 0 on is unsigned after parsing, and signed if it was made from an int.
  const bool is_count =
      value.is_number_unsigned() || (value.is_number_integer() && value.get<int64_t>() >= 0);
  if (!is_count || value.get<uint64_t>() > most) {
    refuse(key, kind_text(value), "an integer from 0 to " + std::to_string(most));
  }
  return value.get<uint64_t>();
}

uint64_t JsonObject::count(const char* key, uint64_t most, uint64_t fallback) const {
  return has(key) ? count(key, most) : fallback;
}

std::vector<std::string> JsonObject::texts(const char* key) const {
  std::vector<std::string> all;
  if (!has(key)) return all;
  for (const json& value : list(key)) {
    if (!value.is_string()) refuse(key, "a list with " + kind_text(value), "a list of texts");
    all.push_back(value.get<std::string>());
  }
  return all;
}

const json& JsonObject::list(const char* key) const {
  const json& value = member(key);
  if (!value.is_array()) refuse(key, kind_text(value), "a list");
  return value;
}

JsonObject JsonObject::object(const char* key) const {
  const json& value = member(key);
  if (!value.is_object()) refuse(key, kind_text(value), "an object");
  return {value, name_ + ": " + key};
}

}  // namespace bp::conformance

// Reads JSON that comes from outside: files that people may change and disks may damage, and
// records of workers. A defect is a UsageError that names the file and the line or the member, the
// value that is there, and the kind that is needed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace bp::conformance {

// `value` as JSON, which is always written: U+FFFD stands for each byte that is no UTF-8.
std::string json_text(const nlohmann::json& value, int indent = -1);

// A path or an option may have any bytes. text_of_bytes() gives UTF-8 that can stand in JSON, and
// bytes_of_text() gives the very bytes back: a byte that is no UTF-8 is the character U+10FF00 plus
// its value. Text that has none of these characters stays as it is.
std::string text_of_bytes(std::string_view bytes);
std::string bytes_of_text(std::string_view text);

// The bytes of a regular file. Throws UsageError: also for a folder or a pipe.
std::string read_regular_file(const std::string& path);

// Parses `text`, whose first line is line `first_line` of the file `name`. Throws UsageError if
// `text` is not JSON or nests too deep.
nlohmann::json parse_json(std::string_view text, const std::string& name, size_t first_line = 1);

// Calls read_regular_file(), then parse_json().
nlohmann::json read_json_file(const std::string& path);

// An object whose members are checked as they are read. Errors call the object `name`: "run.json"
// or "results.jsonl:7". JsonObject borrows the value.
class JsonObject {
 public:
  // Throws UsageError if `value` is not an object.
  JsonObject(const nlohmann::json& value, std::string name);

  bool has(const char* key) const { return value_.contains(key); }
  const std::string& name() const { return name_; }

  // Each function throws UsageError if the member is of another kind, or if it is missing and there
  // is no `fallback`.
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& fallback) const;
  bool flag(const char* key, bool fallback) const;
  double number(const char* key, double least, double most) const;
  double number(const char* key, double least, double most, double fallback) const;
  uint64_t count(const char* key, uint64_t most) const;
  uint64_t count(const char* key, uint64_t most, uint64_t fallback) const;
  std::vector<std::string> texts(const char* key) const;  // Returns an empty list if there is no
                                                          // such member.
  const nlohmann::json& list(const char* key) const;
  JsonObject object(const char* key) const;

  // Returns the member, of any kind. Throws UsageError if there is none.
  const nlohmann::json& member(const char* key) const;

  // Throws the UsageError for a member.
  [[noreturn]] void refuse(const char* key, const std::string& is, const std::string& needed) const;

 private:
  const nlohmann::json& value_;
  std::string name_;
};

// Describes a value for messages: "a text", "a list of 3".
std::string kind_text(const nlohmann::json& value);

}  // namespace bp::conformance

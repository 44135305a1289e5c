// JSON that comes from outside: files that people change and disks damage, and records of workers.
// A defect is a UsageError that names the file and the line, or the member, what is there, and what
// is needed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace bp::conformance {

// The bytes of a regular file. Throws UsageError: also for a folder or a pipe.
std::string read_regular_file(const std::string& path);

// Parses `text`, whose first line is line `first_line` of the file `name`. Throws UsageError if it
// is no JSON or nests too deep.
nlohmann::json parse_json(std::string_view text, const std::string& name, size_t first_line = 1);

// read_regular_file(), then parse_json().
nlohmann::json read_json_file(const std::string& path);

// An object whose members are checked as they are read. `name` is what errors call it; "run.json"
// or "results.jsonl:7". It borrows the value.
class JsonObject {
 public:
  // Throws UsageError if `value` is no object.
  JsonObject(const nlohmann::json& value, std::string name);

  bool has(const char* key) const { return value_.contains(key); }
  const std::string& name() const { return name_; }

  // Each throws UsageError if the member is of another kind. Without `fallback` the member is
  // needed.
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& fallback) const;
  bool flag(const char* key, bool fallback) const;
  double number(const char* key, double least, double most) const;
  double number(const char* key, double least, double most, double fallback) const;
  uint64_t count(const char* key, uint64_t most) const;
  uint64_t count(const char* key, uint64_t most, uint64_t fallback) const;
  std::vector<std::string> texts(const char* key) const;  // Empty where there is none.
  const nlohmann::json& list(const char* key) const;
  JsonObject object(const char* key) const;

  // The member, whatever it is. Throws UsageError if there is none.
  const nlohmann::json& member(const char* key) const;

  // Throws the UsageError of a member.
  [[noreturn]] void refuse(const char* key, const std::string& is, const std::string& needed) const;

 private:
  const nlohmann::json& value_;
  std::string name_;
};

// "a text", "a list of 3": what a value is, for messages.
std::string kind_text(const nlohmann::json& value);

}  // namespace bp::conformance

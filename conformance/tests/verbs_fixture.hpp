// What the tests of verbs share: verbs that run in the test program, and workers that behave as a
// script says (runner/scripted_worker.hpp).
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "conformance/cli/verbs.hpp"
#include "conformance/json_file.hpp"

namespace bp::conformance {

// What complain() was called with, in the place of standard error.
std::vector<std::string>& complaints();

// These cases of the suite belong to no op, so that their lists are made quickly.
inline constexpr const char* kStreamCase = "stream.destroy_accepts_null";
inline constexpr const char* kEventCase = "event.destroy_accepts_null";

class Verbs : public testing::Test {
 protected:
  using Words = std::vector<std::string>;

  Verbs() {
    std::string path = (std::filesystem::temp_directory_path() / "bp_verbs_XXXXXX").string();
    folder_ = mkdtemp(path.data());
    complaints().clear();
  }
  ~Verbs() override { std::filesystem::remove_all(folder_); }

  // Runs a verb, and keeps what it prints in printed_.
  int call(int (*verb)(const CommandLine&), const Words& words) {
    const CommandLine line = parse_command_line(words);
    testing::internal::CaptureStdout();
    try {
      const int code = verb(line);
      printed_ = testing::internal::GetCapturedStdout();
      return code;
    } catch (...) {
      printed_ = testing::internal::GetCapturedStdout();
      throw;
    }
  }

  // Returns the text of the error that ends the verb.
  template <typename Error>
  std::string error_of(int (*verb)(const CommandLine&), const Words& words) {
    try {
      const int code = call(verb, words);
      ADD_FAILURE() << "the verb ended with code " << code;
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  // The words of a run of two cases into the folder `name`.
  Words run_words(const std::string& plugin, const std::string& name,
                  const Words& more = {}) const {
    Words words = {"run", plugin, "--case", kStreamCase, "--case", kEventCase, "--out", at(name)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  std::string at(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(at(name), std::ios::binary) << text;
    return at(name);
  }
  std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(at(name), std::ios::binary).rdbuf();
    return text.str();
  }
  nlohmann::json document(const std::string& name) const { return read_json_file(at(name)); }
  bool has(const std::string& name) const { return std::filesystem::exists(at(name)); }
  bool has_printed(const std::string& part) const {
    return printed_.find(part) != std::string::npos;
  }
  static size_t lines_in(const std::string& text) {
    return static_cast<size_t>(std::ranges::count(text, '\n'));
  }

  // A worker that says of the plugin that it is this file.
  std::string plugin_at(const std::string& path) const {
    const nlohmann::json target = {{"name", "acme.npu:0"},
                                   {"dtypes", nlohmann::json::array()},
                                   {"profiles", nlohmann::json::array()},
                                   {"heaps", nlohmann::json::array()},
                                   {"kernels", nlohmann::json::array()}};
    const nlohmann::json hello = {{"plugin", {{"name", "acme.npu"}, {"path", path}}},
                                  {"targets", nlohmann::json::array({target})},
                                  {"target", 0}};
    return "hello:" + json_text(hello);
  }

  std::filesystem::path folder_;
  std::string printed_;
};

}  // namespace bp::conformance

// The verbs package and verify: results that a vendor hands in, and their check.
#include "conformance/report/package.hpp"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <random>

#include "conformance/cli/signature.hpp"
#include "conformance/cli/verbs.hpp"
#include "conformance/json_file.hpp"
#include "conformance/report/file_hash.hpp"
#include "conformance/report/files.hpp"

namespace bp::conformance {
namespace {

namespace fs = std::filesystem;
Statements statements_of(const CommandLine& line) {
  Statements statements;
  for (const std::string& word : line.statements) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError("--state is '" + word + "'; allowed: KEY=TEXT, such as vendor=Acme");
    }
    statements[text_of_bytes(word.substr(0, equals))] = text_of_bytes(word.substr(equals + 1));
  }
  return statements;
}

// A folder that ends with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (fs::temp_directory_path() / "bp-verify-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) throw OutputError(pattern + ": cannot be made");
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  ScratchFolder(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Draws cases whose results a second run can repeat: those that ran.
std::vector<std::string> draw_samples(const StoredRun& run, size_t count, uint64_t seed) {
  std::vector<std::string> ids;
  for (const StoredCase& stored : run.cases()) {
    const bool is_case = stored.id != "load" && stored.id != "unload";
    if (is_case && count_of(stored.result.outcome) != Count::kSkipped) ids.push_back(stored.id);
  }
  std::mt19937_64 random(seed);
  std::ranges::shuffle(ids, random);
  ids.resize(std::min(ids.size(), count));
  return ids;
}

Check check_plugin(const Package& package, const std::string& path) {
  const std::string stated = package.statement.at("plugin").at("sha256");
  const std::string now = sha256_of_file(path);
  if (now.empty()) return {"plugin", Check::State::kFails, path + " cannot be read"};
  if (now == stated)
    return {"plugin", Check::State::kHolds, path + " is the plugin of the package"};
  return {"plugin", Check::State::kFails,
          path + " has the hash " + now.substr(0, 12) + ", and the package states " +
              stated.substr(0, 12)};
}

// Runs cases of the package again, with its seed and options, and compares how they end.
Check check_samples(const CommandLine& line, const StoredRun& run) {
  const RunHeader stated = run_header_from_json(run.info().at("run"), line.folder + ": info.json");
  uint64_t seed = line.sample_seed;
  if (seed == 0) seed = std::random_device()();
  std::cout << "samples drawn by --seed " << seed << "\n";
  const std::vector<std::string> ids = draw_samples(run, line.samples, seed);
  const ScratchFolder scratch;
  std::vector<std::string> words = {
      "run", line.plugin, "-q", "--out", scratch.path(), "--seed", std::to_string(stated.seed)};
  words.insert(words.end(), stated.repro_flags.begin(), stated.repro_flags.end());
  for (const std::string& id : ids) words.insert(words.end(), {"--case", id});
  try {
    static_cast<void>(run_verb(parse_command_line(std::move(words))));
    return compare_samples(run, StoredRun::read(scratch.path()));
  } catch (const CommandLineEnd& end) {
    return {"samples", Check::State::kFails, "the flags of the run are refused: " + end.text};
  } catch (const NothingMatched& e) {
    return {"samples", Check::State::kFails, e.what()};
  }
}

}  // namespace

int package_verb(const CommandLine& line) {
  fs::path folder = fs::path(line.folder).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  const std::string file = line.out.empty() ? folder.filename().string() + ".tar" : line.out;
  write_file(file, make_package(line.folder, statements_of(line)));
  std::cout << "package: " << file << "\n";
  if (!line.sign_key.empty()) {
    std::cout << "signature: " << sign_file(file, line.sign_key) << "\n";
  }
  return kExitOk;
}

int verify_verb(const CommandLine& line) {
  Package package = open_package(read_regular_file(line.folder), line.folder);
  package.checks.push_back(check_signature(line.folder, line.allowed_signers, line.signer));
  const std::string needs = "name the plugin by --plugin to run cases again on the device";
  if (line.plugin.empty()) {
    package.checks.push_back({"plugin", Check::State::kNotChecked, needs});
  } else {
    package.checks.push_back(check_plugin(package, line.plugin));
    const bool is_same = package.checks.back().state == Check::State::kHolds;
    package.checks.push_back(
        is_same ? check_samples(line, package.run)
                : Check{"samples", Check::State::kNotChecked, "it is another plugin"});
  }
  const bool is_good = is_sound(package.checks);
  std::cout << checks_text(package.checks) << "verdict: "
            << (is_good ? "SOUND: " + package.run.summary().value("verdict", "") : "NOT SOUND")
            << "\n";
  return is_good ? kExitOk : kExitFailures;
}

}  // namespace bp::conformance

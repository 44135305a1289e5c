#include "conformance/worker/worker.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backplane/staged.h"
#include "conformance/cases/case_list.hpp"
#include "conformance/perf/perf_list.hpp"
#include "conformance/process/hygiene.hpp"
#include "conformance/recordings/recording_cases.hpp"
#include "conformance/runner/describe.hpp"
#include "conformance/runner/protocol.hpp"
#include "conformance/runner/setup.hpp"
#include "conformance/runner/warden.hpp"
#include "conformance/shrink/changed_case.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

constexpr uint64_t kLateTimeoutNs = 10'000'000'000;  // The time limit for work that a case left
                                                     // behind.

struct RegistryEnd {
  void operator()(bp_registry* registry) const { static_cast<void>(bp_registry_destroy(registry)); }
};

bool send(RecordType type, const json& payload) {
  return write_all(kRecordFd, encode(type, payload));
}

// Blocks until a whole record has arrived. Returns nothing if the supervisor closed the pipe.
std::optional<Record> receive(RecordReader& reader) {
  for (;;) {
    if (std::optional<Record> record = reader.next()) return record;
    std::array<char, 4096> bytes;
    const ssize_t size = ::read(kCommandFd, bytes.data(), bytes.size());
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::nullopt;
    reader.append(std::string_view(bytes.data(), static_cast<size_t>(size)));
  }
}

// A log that any thread may write to.
class Log {
 public:
  void add(bp_log_level level, std::string line) {
    const std::lock_guard lock(mutex_);
    if (level >= BP_LOG_ERROR) errors_.push_back(line);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> take() {
    const std::lock_guard lock(mutex_);
    errors_.clear();
    return std::exchange(lines_, {});
  }
  std::vector<std::string> take_errors() {
    const std::lock_guard lock(mutex_);
    return std::exchange(errors_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;   // Guarded by mutex_.
  std::vector<std::string> errors_;  // The lines of level error. Guarded by mutex_.
};

class Worker {
 public:
  explicit Worker(WorkerSetup setup) : setup_(std::move(setup)) {}

  int serve() {
    if (!load()) return 0;
    RecordReader reader;
    while (std::optional<Record> record = receive(reader)) {
      if (record->type == RecordType::kBye) return say_goodbye();
      if (record->type != RecordType::kRun) return 1;
      run(record->payload);
    }
    return 1;
  }

 private:
  // Loads the backend and sends HELLO. Returns false if there is no target to run on.
  bool load() {
    json hello;
    hello["suite"] = kSuiteVersion;
    hello["host_abi"] = std::to_string(BP_ABI_MAJOR) + "." + std::to_string(BP_ABI_MINOR);
    hello["pid"] = getpid();
    const std::string problem = find_target(hello);
    if (!problem.empty()) hello["error"] = problem;
    hello["findings"] = start_.compare_and_restore();
    std::fflush(nullptr);
    return send(RecordType::kHello, hello) && problem.empty();
  }

  // Fills `hello`. Returns the reason if there is no target.
  std::string find_target(json& hello) {
    // A recording was made of a program that had these services.
    const bp_registry_flags is_pure =
        BP_REGISTRY_FORBID_HOST_FALLBACK |
        (setup_.allows_decompositions ? 0 : BP_REGISTRY_FORBID_DECOMPOSITION);
    const bool is_replay = !setup_.recording.path.empty();
    const bp_registry_desc desc{
        .struct_size = sizeof(bp_registry_desc),
        .struct_type = BP_STRUCT_REGISTRY_DESC,
        .flags = BP_REGISTRY_COMPILE_OPS | (is_replay ? 0 : is_pure),
        .log_line = take_line,
        .user_data = this,
        .layers = setup_.layers.empty() ? nullptr : setup_.layers.c_str(),
        .layer_options = setup_.layer_options.empty() ? nullptr : setup_.layer_options.c_str()};
    bp_registry* registry = nullptr;
    if (bp_registry_create(&desc, &registry) != BP_OK) return bp_error_text();
    registry_.reset(registry);
    if (setup_.plugin.empty()) {
      hello["manifests"] = describe_manifests(registry);
      return "";
    }

    for (const auto& [key, value] : setup_.options) {
      options_.push_back({key.c_str(), value.c_str()});
    }
    const bp_plugin* plugin = nullptr;
    const bp_status status = bp_registry_load(registry, setup_.plugin.c_str(), options_.size(),
                                              options_.data(), &plugin);
    hello["log"] = log_.take();
    if (status != BP_OK) {
      return std::string("does not load: ") + bp_status_name(status) + ": " + bp_error_text();
    }
    hello["plugin"] = describe_plugin(*plugin);
    layers_prefix_ = std::string(plugin->name) + "/";
    source_prefix_ = std::string(plugin->name) + ": ";
    has_loaded_ = true;
    json targets = json::array();
    for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
      const bp_target* target = bp_registry_target(registry, i);
      if (target->plugin != plugin) continue;
      targets.push_back(describe_target(*target));
      if (target_ == nullptr && is_wanted(*target)) target_ = target;
    }
    if (targets.empty()) return "loads, but has no device";
    if (target_ == nullptr) return "has no device \"" + setup_.device + "\"";
    hello["targets"] = std::move(targets);
    hello["target"] = target_->index;
    return setup_.transport.empty() ? "" : stage_groups();
  }

  // Makes staged process groups over those of the plugin of the transport. Returns the reason if
  // that fails.
  std::string stage_groups() {
    const bp_plugin* transport = nullptr;
    bp_status status =
        bp_registry_load(registry_.get(), setup_.transport.c_str(), 0, nullptr, &transport);
    const bp_target* host = nullptr;
    for (uint64_t i = 0; status == BP_OK && i < bp_registry_target_count(registry_.get()); ++i) {
      const bp_target* const target = bp_registry_target(registry_.get(), i);
      if (target->plugin == transport && host == nullptr) host = target;
    }
    if (status == BP_OK) status = bp_staged_groups(target_, host, "", &process_groups_);
    if (status == BP_OK) return "";
    return std::string("has no staged process groups over ") + setup_.transport + ": " +
           bp_status_name(status) + ": " + bp_error_text();
  }

  // Takes a warning of the registry or of the backend, from any thread. After the load nobody reads
  // warnings but those of layers, and what the suite keeps would look like a leak of the backend.
  static void take_line(void* self, bp_log_level level, const char* source, const char* message) {
    if (level < BP_LOG_WARNING) return;
    auto& worker = *static_cast<Worker*>(self);
    std::string line = std::string(source) + ": " + message;
    const bool is_read = level >= BP_LOG_ERROR || !worker.has_loaded_.load() ||
                         line.starts_with(worker.layers_prefix_);
    if (is_read) worker.log_.add(level, std::move(line));
  }

  bool is_wanted(const bp_target& target) const {
    return setup_.device.empty() || setup_.device == std::to_string(target.index) ||
           setup_.device == target.name;
  }

  void run(const json& request) {
    const std::string id = request.at("case").get<std::string>();
    const uint64_t seed = request.at("seed").get<uint64_t>();
    const Case* which = find_case(request);  // The search runs before BEGIN, so its time does not
                                             // count for the case.
    send(RecordType::kBegin, {{"case", id}});
    const auto start = std::chrono::steady_clock::now();
    Result result;
    if (which != nullptr) {
      result = run_checked(*which, id, seed);
    } else {
      result = {.outcome = Outcome::kHarnessError,
                .message = "the worker has no case of this id",
                .cause = "harness"};
    }
    const std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - start;
    json end = to_json(result);
    end["case"] = id;
    end["wall_ms"] = wall.count();
    end["dispatch"] = to_json(dispatch_counts());
    if (setup_.tells_device_memory) {
      if (const std::optional<uint64_t> bytes = device_bytes()) end["device_bytes"] = *bytes;
    }
    std::fflush(nullptr);
    send(RecordType::kEnd, end);
  }

  // Returns the memory in use in all heaps of the device. Returns nothing if a heap does not tell
  // it, as those of a lost device.
  std::optional<uint64_t> device_bytes() const {
    const bp_device_ops& devices = *target_->devices;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < target_->properties->heap_count; ++i) {
      uint64_t free_bytes = 0, total_bytes = 0;
      const bp_status status =
          devices.memory_info(devices.self, target_->device, i, &free_bytes, &total_bytes);
      if (status != BP_OK) {
        bp_error_clear();
        return std::nullopt;
      }
      sum += total_bytes - std::min(free_bytes, total_bytes);
    }
    return sum;
  }

  // Returns the counts of all calls so far.
  DispatchCounts dispatch_counts() const {
    bp_dispatch_statistics seen{};
    seen.struct_size = sizeof(seen);
    if (bp_target_statistics(target_, 0, &seen) != BP_OK) return {};
    return {seen.native_count,        seen.decomposed_count, seen.host_fallback_count,
            seen.copied_scalar_count, seen.compiled_count,   seen.realigned_count,
            seen.laid_out_count};
  }

  // Returns NULL if there is no such case.
  const Case* find_case(const json& request) {
    const std::string id = request.at("case").get<std::string>();
    if (id.starts_with(kPerfPrefix)) {
      if (!timed_) timed_ = perf_cases(setup_.perf);
      return timed_->find(id);
    }
    if (!setup_.recording.path.empty()) {
      if (!recorded_) recorded_ = recording_cases(setup_.recording);
      return recorded_->find(id);
    }
    if (!request.contains("change")) return finder_.find(id);
    try {
      const json change = json::parse(request.at("change").get<std::string>());
      changed_ = make_changed_case(CaseList::of({change.value("case", "")}), change);
    } catch (const std::exception&) {
      return nullptr;
    }
    return &*changed_;
  }

  // `id` is the name that the supervisor uses for the case.
  Result run_checked(const Case& which, const std::string& id, uint64_t seed) {
    if (!which.dtype.empty() && !lists_dtype(which.dtype)) {
      return {.outcome = Outcome::kNotSupported,
              .message = which.dtype + " is not among the dtypes of the device"};
    }
    const Subject subject{.target = target_,
                          .registry = registry_.get(),
                          .plugin = setup_.plugin,
                          .options = options_,
                          .case_options = setup_.case_options,
                          .layer_options = setup_.layer_options,
                          .process_groups = process_groups_};
    Context context(subject, which, seed, [&](std::string_view phase) {
      send(RecordType::kProgress, {{"case", id}, {"phase", phase}});
    });
    const ProcessState before = ProcessState::take(start_);
    bp_error_clear();
    static_cast<void>(log_.take());
    Result result = run_case(which, context);
    find_late_failure(result);
    for (const std::string& line : backend_errors()) charge(result, {line, "log", ""});
    for (const std::string& line : layer_reports()) charge(result, {line, "layer", tag_in(line)});
    for (const std::string& change : before.compare_and_restore()) {
      charge(result, {"while the case ran, " + change, "hygiene", "ENTRY-4"});
    }
    return result;
  }

  bool lists_dtype(const std::string& name) const {
    const bp_dtype dtype = bp_dtype_from_name(name.c_str());
    const bp_device_properties& p = *target_->properties;
    for (uint64_t i = 0; i < p.dtype_count; ++i) {
      if (p.dtypes[i] == dtype) return true;
    }
    return false;
  }

  // Charges a failure that a case left behind to that case, and not to the next one.
  void find_late_failure(Result& result) {
    const bp_device_ops& devices = *target_->devices;
    const bp_stream_ops& streams = *target_->streams;
    bp_stream* stream = target_->default_stream;
    const bp_status idle = devices.synchronize(devices.self, target_->device, kLateTimeoutNs);
    if (idle != BP_OK) {
      charge(result, {std::string("synchronize of the device after the case: ") +
                          bp_status_name(idle) + ": " + bp_error_text(),
                      "late", ""});
      if (idle == BP_DEVICE_LOST) result.details[kLostDetail] = "lost";
    }
    const bp_status late = streams.status(streams.self, stream);
    if (late != BP_OK) {
      charge(result, {std::string("the case left a failure on the default stream: ") +
                          bp_status_name(late) + ": " + bp_error_text(),
                      "late", ""});
      static_cast<void>(streams.clear_failure(streams.self, stream));
    }
    bp_error_clear();
  }

  // Returns the lines of level error that the backend wrote since the last call, such as messages
  // of checks in its driver.
  std::vector<std::string> backend_errors() {
    std::vector<std::string> lines = log_.take_errors();
    std::erase_if(lines, [&](const std::string& line) {
      return source_prefix_.empty() || !line.starts_with(source_prefix_);
    });
    return lines;
  }

  // Returns the lines that layers wrote to the log since the last call.
  std::vector<std::string> layer_reports() {
    std::vector<std::string> lines = log_.take();
    std::erase_if(lines, [&](const std::string& line) {
      return layers_prefix_.empty() || !line.starts_with(layers_prefix_);
    });
    return lines;
  }

  // Returns "MEMORY-5" for "acme.npu/validate: [MEMORY-5] memory.deallocate: ...", and "" if the
  // line names no rule.
  static std::string tag_in(const std::string& line) {
    const size_t begin = line.find(": [");
    const size_t end = begin == line.npos ? line.npos : line.find(']', begin);
    return end == line.npos ? "" : line.substr(begin + 3, end - begin - 3);
  }

  // Adds a finding that comes from outside the case. It turns a pass into a failure.
  static void charge(Result& result, const Finding& finding) {
    if (count_of(result.outcome) == Count::kFailed) {
      result.notes.push_back(finding.message);
      return;
    }
    result.outcome = Outcome::kFail;
    result.message = finding.message;
    result.cause = finding.cause;
    if (!finding.tag.empty()) result.tag = finding.tag;
  }

  int say_goodbye() {
    const ProcessState before = ProcessState::take(start_);
    static_cast<void>(log_.take());
    recorded_.reset();
    registry_.reset();
    std::fflush(nullptr);
    std::vector<std::string> reports = layer_reports(), idle_rules;
    std::erase_if(reports, [&](const std::string& line) {
      const bool is_idle = line.starts_with(layers_prefix_ + "fault: no call fits ");
      if (is_idle) idle_rules.push_back(line);
      return is_idle;
    });
    send(RecordType::kBye, {{"findings", before.compare_and_restore()},
                            {"layer_reports", reports},
                            {"idle_rules", idle_rules}});
    return 0;
  }

  WorkerSetup setup_;
  const ProcessState start_ = ProcessState::take();  // The state before the backend is loaded.
  Log log_;  // Declared before the registry, which writes to it until its end.
  CaseFinder finder_;
  std::optional<CaseList> timed_;
  std::optional<CaseList> recorded_;  // Holds memory of the backend until the goodbye.
  std::optional<Case> changed_;
  std::unique_ptr<bp_registry, RegistryEnd> registry_;
  std::vector<bp_option> options_;
  const bp_target* target_ = nullptr;
  const bp_process_group_ops* process_groups_ = nullptr;  // Staged ones, or NULL.
  std::string layers_prefix_;  // The prefix of the sources that layers log under: "acme.npu/".
  std::string source_prefix_;  // The prefix of the backend's own lines: "acme.npu: ".
  std::atomic<bool> has_loaded_ = false;  // The prefixes are set.
};

}  // namespace

int run_worker(const std::string& setup_json) {
  const json parsed = json::parse(setup_json, nullptr, false);
  if (!parsed.is_object() || fcntl(kCommandFd, F_GETFD) < 0 || fcntl(kRecordFd, F_GETFD) < 0) {
    std::fputs("bp-conformance: --worker is for the supervisor only\n", stderr);
    return 2;
  }
  WorkerSetup setup = worker_setup_from_json(parsed, "the setup of the worker");
  divide_into_warden_and_worker(setup.parent);
  // The children of the backend must not inherit the pipes.
  fcntl(kCommandFd, F_SETFD, FD_CLOEXEC);
  fcntl(kRecordFd, F_SETFD, FD_CLOEXEC);
  return Worker(std::move(setup)).serve();
}

}  // namespace bp::conformance

// trace: writes every call as an event of a timeline that Perfetto and chrome://tracing open, with
// its thread, its duration and its arguments as text. The file has the array form of Chrome's trace
// format, which can be opened even if the process ended early.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>

#include "registry/boundary/deadline.hpp"
#include "registry/boundary/error_slot.hpp"
#include "registry/boundary/fail.hpp"
#include "registry/boundary/number_text.hpp"
#include "registry/boundary/tables.hpp"
#include "registry/calls/runtime_ops.hpp"
#include "registry/layers/at_exit.hpp"
#include "registry/layers/json_text.hpp"
#include "registry/layers/list.hpp"
#include "registry/layers/output_file.hpp"
#include "registry/layers/slots.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kDefaultFile = "backplane_trace.%b.%p.json";

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

// Finds the name of a file that no other trace of this process writes.
class OwnName {
 public:
  // Takes `name`. If it is taken, puts `distinction` before its ending: "run.acme.cpu.json".
  OwnName(const std::string& name, const std::string& distinction) : name_(name) {
    const std::lock_guard lock(mutex());
    const std::filesystem::path path(name);
    std::string stem = path.stem().string();
    while (!taken().insert(name_).second) {
      stem += "." + distinction;
      name_ = (path.parent_path() / (stem + path.extension().string())).string();
    }
  }
  OwnName(const OwnName&) = delete;
  ~OwnName() {
    const std::lock_guard lock(mutex());
    taken().erase(name_);
  }

  const std::string& get() const { return name_; }

 private:
  static std::mutex& mutex() {
    static auto* const mutex = new std::mutex;
    return *mutex;
  }
  static std::set<std::string>& taken() {
    static auto* const names = new std::set<std::string>;
    return *names;
  }

  std::string name_;
};

class TraceLayer final : public Layer {
 public:
  using Layer::Layer;

  bp_status begin(const bp_backend& /*next*/) override {
    const std::string wanted =
        with_names(options().has("file") ? options().text("file") : kDefaultFile, backend_name());
    own_name_.emplace(wanted, backend_name());
    file_ = own_name_->get();
    if (file_ != wanted) {
      log(BP_LOG_WARNING, "trace.file '" + wanted +
                              "' belongs to another backend, so this one writes '" + file_ +
                              "'; with %b in the name each backend has its own file");
    }
    const std::string defect = write_to(file_, O_CREAT | O_TRUNC, "");
    if (!defect.empty()) {
      return fail(BP_NOT_FOUND,
                  "layer option trace.file: '" + file_ + "' cannot be written: " + defect);
    }
    at_exit_.emplace([this] { end_file(); });
    JsonText args;
    args.add("name", "backplane " + backend_name());
    write("{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":" + std::to_string(getpid()) +
          ",\"args\":" + args.text() + "}");
    return BP_OK;
  }

  bp_status check() override { return options().number("trace", "device", 1, records_devices_); }

  void on_table(AnyTable table) override {
    if (auto* const* profiler = std::get_if<Wrapped<bp_profiler_ops>*>(&table)) {
      profiler_ = *profiler;
    }
    std::visit([](auto* wrapped) { surround_all<TraceLayer>(*wrapped); }, table);
  }

  bool on_kernel(WrappedKernel& kernel) override {
    surround_all<TraceLayer>(kernel);
    return true;
  }

  bp_status shut_down(const bp_backend& next, uint64_t timeout_ns) override {
    const Clock::time_point start = Clock::now();
    bp_status status = stop_devices(timeout_ns);
    if (status == BP_TIMEOUT) return status;
    status = next.shutdown(next.self, core::left_ns(start, timeout_ns));
    if (status == BP_TIMEOUT) return status;
    JsonText args;
    args.add("status", status_words(status));
    write_event("backend.shutdown", "backend", start, Clock::now(), args);
    end_file();
    return status;
  }

  template <Slot kSlot, typename Next, typename... Args>
  bp_status around(Next next, Args... args) {
    const Clock::time_point start = Clock::now();
    const bp_status status = next();
    const Clock::time_point end = Clock::now();
    JsonText text;
    ArgumentText arguments(text, slot_arguments(kSlot), status == BP_OK);
    (arguments.add(args), ...);
    text.add("status", status_words(status));
    const std::string_view name = slot_name(kSlot);
    write_event(name, name.substr(0, name.find('.')), start, end, text);
    return status;
  }

  template <Slot kSlot, typename Next, typename... Args>
  bp_status around_kernel(const WrappedKernel& kernel, Next next, Args... args) {
    if constexpr (kSlot == Slot::kernel_launch) record_device(std::get<0>(std::tuple(args...)));
    const Clock::time_point start = Clock::now();
    const bp_status status = next();
    const Clock::time_point end = Clock::now();
    JsonText text;
    text.add("op", op_words(core::op_of(kernel.kernel)));
    ArgumentText arguments(text, slot_arguments(kSlot), status == BP_OK,
                           core::op_of(kernel.kernel));
    (arguments.add(args), ...);
    text.add("status", status_words(status));
    std::string name = kernel.kernel.name == nullptr ? "kernel" : kernel.kernel.name;
    if constexpr (kSlot != Slot::kernel_launch) {
      name += std::string(slot_name(kSlot).substr(std::string_view("kernel").size()));
    }
    write_event(name, "kernel", start, end, text);
    return status;
  }

 private:
  // What the sink needs to know of a device whose work is recorded.
  struct Device {
    TraceLayer* layer;
    bp_device* device;
    // The distance from the device's clock to CLOCK_MONOTONIC, which Clock is.
    int64_t offset_ns;
  };

  // Begins to record the work of a device at its first launch. A host that records the device
  // itself then gets BP_ALREADY_EXISTS from the backend, so the user has to ask for this recording.
  void record_device(const bp_launch* launch) {
    if (records_devices_ == 0 || launch == nullptr) return;
    Device* added = nullptr;
    {
      const std::lock_guard lock(mutex_);
      const auto is_known = [&](const Device& d) { return d.device == launch->device; };
      if (std::ranges::any_of(devices_, is_known)) return;
      added = &devices_.emplace_back(Device{this, launch->device, 0});
    }
    const bp_profiler_ops* profiler = profiler_ == nullptr ? nullptr : &profiler_->next;
    if (profiler == nullptr || profiler->start == nullptr || profiler->calibrate == nullptr) {
      log(BP_LOG_WARNING, "trace.device: the backend has no profiler; its calls alone are traced");
      return;
    }
    int64_t device_ns = 0, host_ns = 0, error_ns = 0;
    const bp_profile_desc desc{.struct_size = sizeof(desc),
                               .struct_type = BP_STRUCT_PROFILE_DESC,
                               .sink = take_activity,
                               .user_data = added};
    bp_status status =
        profiler->calibrate(profiler->self, launch->device, &device_ns, &host_ns, &error_ns);
    added->offset_ns = host_ns - device_ns;
    if (status == BP_OK) status = profiler->start(profiler->self, launch->device, &desc);
    if (status != BP_OK) {
      log(BP_LOG_WARNING,
          "trace.device: the work of the device is not recorded: " + core::take_error());
    }
  }

  // Ends the recordings of devices, and returns BP_TIMEOUT if one does not end in time. A launch on
  // a device whose recording has ended begins a new one.
  bp_status stop_devices(uint64_t timeout_ns) {
    if (profiler_ == nullptr || profiler_->next.stop == nullptr) return BP_OK;
    const Clock::time_point start = Clock::now();
    while (!devices_.empty()) {
      const bp_status status = profiler_->next.stop(profiler_->next.self, devices_.front().device,
                                                    core::left_ns(start, timeout_ns));
      if (status == BP_TIMEOUT) return status;
      const std::lock_guard lock(mutex_);
      devices_.pop_front();
    }
    return BP_OK;
  }

  // Writes one piece of work, in the row of its stream.
  static void take_activity(void* self, const bp_activity* activity) {
    constexpr uint32_t kFirst = offsetof(bp_activity, reserved) + sizeof(bp_activity::reserved);
    if (!core::struct_defect(activity, BP_STRUCT_ACTIVITY, kFirst).empty()) return;
    const auto& device = *static_cast<const Device*>(self);
    const auto time = [&](int64_t device_ns) {
      return Clock::time_point(std::chrono::nanoseconds(device_ns + device.offset_ns));
    };
    JsonText args;
    args.add("stream", words(activity->stream));
    if (activity->bytes != 0) args.add("bytes", activity->bytes);
    if (activity->flops != 0) args.add("flops", activity->flops);
    const auto row =
        static_cast<int>(reinterpret_cast<uintptr_t>(activity->stream) >> 4 & 0x7FFFFFFF);
    device.layer->write_event(activity->name == nullptr ? "work" : activity->name, "device",
                              time(activity->start_ns), time(activity->end_ns), args, row);
  }

  // Events are kept in memory until they are written, so most calls do not touch the file.
  static constexpr size_t kPendingBytes = 256 << 10;

  void write_event(std::string_view name, std::string_view category, Clock::time_point start,
                   Clock::time_point end, const JsonText& args, int row = gettid()) {
    write("{\"name\":" + JsonText::quoted(name) + ",\"cat\":" + JsonText::quoted(category) +
          ",\"ph\":\"X\",\"ts\":" + fixed_text(microseconds(start - origin_), 3) + ",\"dur\":" +
          fixed_text(microseconds(end - start), 3) + ",\"pid\":" + std::to_string(getpid()) +
          ",\"tid\":" + std::to_string(row) + ",\"args\":" + args.text() + "}");
  }

  // Runs once. Later events are not recorded.
  void end_file() {
    std::string problem;
    {
      const std::lock_guard lock(mutex_);
      if (is_ended_) return;
      is_ended_ = true;
      pending_ += "\n]\n";
      flush();
      problem = problem_;
    }
    if (!problem.empty()) {
      report("the trace '" + file_ + "' is not complete: it could not be written: " + problem);
    }
  }

  void write(const std::string& event) {
    const std::lock_guard lock(mutex_);
    if (is_ended_) return;
    pending_ += is_empty_ ? "[\n" : ",\n";
    pending_ += event;
    is_empty_ = false;
    if (pending_.size() >= kPendingBytes) flush();
  }

  // Writes the pending events. The caller holds the lock. The first problem is kept for the end.
  void flush() {
    const std::string problem = write_to(file_, O_CREAT | O_APPEND, pending_);
    if (problem_.empty()) problem_ = problem;
    pending_.clear();
  }

  const Clock::time_point origin_ = Clock::now();
  std::mutex mutex_;
  uint64_t records_devices_ = 0;
  Wrapped<bp_profiler_ops>* profiler_ = nullptr;
  std::deque<Device> devices_;  // Guarded by mutex_ until the shutdown.
  // Guarded by mutex_ after begin().
  std::string file_, pending_, problem_;
  bool is_empty_ = true, is_ended_ = false;
  std::optional<OwnName> own_name_;
  std::optional<AtExit> at_exit_;  // The last member, so that it ends first.
};

constexpr OptionInfo kTraceOptions[] = {
    {"file",
     "where it is written, with %b for the backend and %p for the process; default "
     "backplane_trace.%b.%p.json"},
    {"device", "1: the work of the devices too, from their profilers; default 0"}};

}  // namespace

constinit const LayerInfo kTraceLayer{"trace", "writes a timeline of every call", kTraceOptions,
                                      make_layer<TraceLayer>};

}  // namespace bp::layers

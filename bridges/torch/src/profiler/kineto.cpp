// The records of the devices in the traces of torch.profiler, through Kineto, its collector.
//
// Kineto says which operator and which record_function() each thread is in. Both are kept under one
// number, the origin, which the plugin gives back with each record. So each record is linked to the
// innermost operator that submitted it, and each record_function() gets a span on each stream that
// has work of it.
#include <IActivityProfiler.h>
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <map>
#include <tuple>

#include "recording.h"

namespace bpt {
namespace {

using libkineto::ActivityType;
using libkineto::GenericTraceActivity;

constexpr char kName[] = "backplane";

// What a thread was in: PyTorch's numbers of an operator and of a record_function(); 0: in none.
struct Origin {
  uint64_t op = 0;
  uint64_t annotation = 0;
};

// The origins of one session. No number is used twice in a process: a thread may still be within an
// operator of an earlier session, whose number is then unknown.
class Origins {
 public:
  uint64_t push_op(uint64_t op) { return push({op, top().annotation}); }
  uint64_t push_annotation(uint64_t annotation) { return push({top().op, annotation}); }
  void pop() {
    if (!stack().empty()) stack().pop_back();
  }

  Origin find(uint64_t number) const {
    const std::lock_guard lock(mutex_);
    const auto found = origins_.find(number);
    return found == origins_.end() ? Origin{} : found->second;
  }

 private:
  // This thread's; what it has of an earlier session is dropped.
  std::vector<Origin>& stack() const {
    thread_local std::pair<uint64_t, std::vector<Origin>> own;
    if (std::exchange(own.first, session_) != session_) own.second.clear();
    return own.second;
  }
  Origin top() const { return stack().empty() ? Origin{} : stack().back(); }

  uint64_t push(Origin origin) {
    stack().push_back(origin);
    const std::lock_guard lock(mutex_);
    const uint64_t number = next_++;
    origins_.emplace(number, origin);
    return number;
  }

  static inline std::atomic<uint64_t> next_{1};
  const uint64_t session_ = next_++;
  mutable std::mutex mutex_;  // Guards origins_.
  std::map<uint64_t, Origin> origins_;
};

ActivityType type_of(bp_activity_kind kind) {
  if (kind == BP_ACTIVITY_COPY) return ActivityType::GPU_MEMCPY;
  if (kind == BP_ACTIVITY_FILL) return ActivityType::GPU_MEMSET;
  return ActivityType::CONCURRENT_KERNEL;
}

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(std::set<ActivityType> types) : types_(std::move(types)) {}

  // A profile of the CPU alone has a session too, which asks for no kernels.
  void start() override {
    buffer_->span.startTime = c10::getTime();
    if (types_.contains(ActivityType::CONCURRENT_KERNEL)) recording_.start();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    recording_.stop();
    buffer_->span.endTime = c10::getTime();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  void toggleCollectionDynamic(bool enable) override {
    if (!enable) return recording_.stop();
    if (types_.contains(ActivityType::CONCURRENT_KERNEL)) recording_.start();
  }
  std::vector<std::string> errors() override { return recording_.problems(); }

  void pushCorrelationId(uint64_t id) override { recording_.push(origins_.push_op(id)); }
  void pushUserCorrelationId(uint64_t id) override {
    recording_.push(origins_.push_annotation(id));
  }
  void popCorrelationId() override {
    origins_.pop();
    recording_.pop();
  }
  void popUserCorrelationId() override { popCorrelationId(); }

  void processTrace(libkineto::ActivityLogger& logger) override {
    processTrace(
        logger, [](int32_t) { return nullptr; }, 0, 0);
  }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t, int64_t) override {
    for (const std::string& problem : recording_.problems()) {
      TORCH_WARN("torch_backplane: ", problem);
    }
    std::set<c10::DeviceIndex> devices;
    for (const DeviceRecord& record : recording_.records()) {
      add(record, linked);
      devices.insert(record.device);
    }
    for (const c10::DeviceIndex index : devices) {
      // Devices are shown behind all processes.
      logger.handleDeviceInfo(
          {index, libkineto::kExceedMaxPid + index, device_at(index).target->properties->name,
           c10::str("bp:", static_cast<int>(index))},
          buffer_->span.startTime);
    }
    for (const auto& activity : buffer_->activities) {
      if (types_.contains(activity->type())) logger.handleActivity(*activity);
    }
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override { return nullptr; }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override;
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override {
    return std::move(buffer_);
  }

 private:
  void add(const DeviceRecord& record, const libkineto::getLinkedActivityCallback& linked);
  void add_annotation(const GenericTraceActivity& work,
                      const libkineto::ITraceActivity& annotation);
  GenericTraceActivity& new_activity(ActivityType type, const std::string& name);
  int64_t number_of(c10::DeviceIndex device, const bp_stream* stream);

  const std::set<ActivityType> types_;
  Recording recording_;
  Origins origins_;
  std::map<std::pair<c10::DeviceIndex, const bp_stream*>, int64_t> streams_;
  std::map<std::tuple<int32_t, int64_t, int64_t>, GenericTraceActivity*> annotations_;
  // The activities point to the span, so that the buffer is never moved.
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = make_buffer();

  static std::unique_ptr<libkineto::CpuTraceBuffer> make_buffer() {
    auto buffer = std::make_unique<libkineto::CpuTraceBuffer>();
    buffer->span.name = kName;
    buffer->gpuOpCount = 0;
    return buffer;
  }
};

GenericTraceActivity& Session::new_activity(ActivityType type, const std::string& name) {
  buffer_->emplace_activity(buffer_->span, type, name);
  return *buffer_->activities.back();
}

// The default stream has the number 0, the others have those of their first work.
int64_t Session::number_of(c10::DeviceIndex device, const bp_stream* stream) {
  if (stream == device_at(device).target->default_stream) stream = nullptr;
  const int64_t next = stream == nullptr ? 0 : static_cast<int64_t>(streams_.size()) + 1;
  return streams_.emplace(std::pair(device, stream), next).first->second;
}

void Session::add(const DeviceRecord& record, const libkineto::getLinkedActivityCallback& linked) {
  const Origin origin = origins_.find(record.origin);
  GenericTraceActivity& work = new_activity(type_of(record.kind), record.name);
  work.startTime = record.start_ns;
  work.endTime = record.end_ns;
  work.device = record.device;
  work.resource = number_of(record.device, record.stream);
  work.addMetadata("device", static_cast<int>(record.device));
  work.addMetadata("stream", work.resource);
  if (record.bytes != 0) work.addMetadata("bytes", record.bytes);
  if (record.flops != 0) work.addMetadata("flops", record.flops);
  ++buffer_->gpuOpCount;
  if (origin.op != 0) {
    work.id = static_cast<int32_t>(origin.op);
    work.linked = linked(work.id);
  }
  if (origin.annotation == 0) return;
  if (const auto* annotation = linked(static_cast<int32_t>(origin.annotation))) {
    add_annotation(work, *annotation);
  }
}

// A record_function() lasts on a stream from its first to its last work there.
void Session::add_annotation(const GenericTraceActivity& work,
                             const libkineto::ITraceActivity& annotation) {
  auto& own = annotations_[{work.device, work.resource, annotation.correlationId()}];
  if (own == nullptr) {
    own = &new_activity(ActivityType::GPU_USER_ANNOTATION, annotation.name());
    own->startTime = work.startTime;
    own->device = work.device;
    own->resource = work.resource;
    own->id = static_cast<int32_t>(annotation.correlationId());
  }
  own->startTime = std::min(own->startTime, work.startTime);
  own->endTime = std::max(own->endTime, work.endTime);
}

std::vector<libkineto::ResourceInfo> Session::getResourceInfos() {
  std::vector<libkineto::ResourceInfo> infos;
  for (const auto& [key, number] : streams_) {
    infos.push_back({number, number, key.first,
                     c10::str("bp:", static_cast<int>(key.first), " stream ", number)});
  }
  return infos;
}

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config&) override {
    return std::make_unique<Session>(types);
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      int64_t, int64_t, const std::set<ActivityType>& types,
      const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = kName;
  const std::set<ActivityType> types_ = {ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                         ActivityType::GPU_MEMSET,
                                         ActivityType::GPU_USER_ANNOTATION};
};

}  // namespace

void register_kineto() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
      [] { return std::make_unique<Profiler>(); });
}

}  // namespace bpt

#include "train_gpt/schedule_recorder.hpp"

#include <algorithm>
#include <stdexcept>

namespace {

namespace bd = bp::distributed;

struct Kind {
  bp_collective_kind kind;
  const char* name;
  const char* other = nullptr;  // What the line calls Collective::root, if it counts.
};
constexpr Kind kKinds[] = {{BP_COLLECTIVE_ALL_REDUCE, "all_reduce"},
                           {BP_COLLECTIVE_REDUCE, "reduce", "root"},
                           {BP_COLLECTIVE_BROADCAST, "broadcast", "root"},
                           {BP_COLLECTIVE_ALL_GATHER, "all_gather"},
                           {BP_COLLECTIVE_GATHER, "gather", "root"},
                           {BP_COLLECTIVE_REDUCE_SCATTER, "reduce_scatter"},
                           {BP_COLLECTIVE_SCATTER, "scatter", "root"},
                           {BP_COLLECTIVE_ALL_TO_ALL, "all_to_all"},
                           {BP_COLLECTIVE_BARRIER, "barrier"},
                           {BP_COLLECTIVE_SEND, "send", "peer"},
                           {BP_COLLECTIVE_RECEIVE, "receive", "peer"}};

// The size of the whole tensor: gathers and scatters have it on the root alone, but the part of
// each rank tells it.
uint64_t bytes_of(const bd::Collective& call, uint32_t ranks) {
  const auto size = [](const bp::Tensor& tensor) { return tensor ? tensor.size_bytes() : 0; };
  if (call.kind == BP_COLLECTIVE_GATHER) return size(call.send) * ranks;
  if (call.kind == BP_COLLECTIVE_SCATTER) return size(call.receive) * ranks;
  return std::max(size(call.send), size(call.receive));
}

}  // namespace

ScheduleRecorder::ScheduleRecorder(const std::string& path, uint32_t rank, uint32_t ranks,
                                   bp::Device device)
    : path_(path + "." + std::to_string(rank)), device_(device), file_(path_) {
  file_ << R"({"event":"start","rank":)" << rank << R"(,"ranks":)" << ranks << "}\n" << std::flush;
  if (!file_) throw std::runtime_error("--record-schedule: " + path_ + " cannot be written");
}

std::shared_ptr<const bd::CallObserver> ScheduleRecorder::observer() {
  return std::make_shared<bd::CallObserver>(
      bd::CallObserver{.on_group = [this](const bd::ProcessGroup& group,
                                          auto members) { add_group(group, members); },
                       .on_submit = [this](const bd::ProcessGroup& group, uint64_t number,
                                           auto calls) { add_calls(group, number, calls); },
                       .on_wait = [this](const std::string& group, uint64_t number,
                                         bool has_ended) { add_wait(group, number, has_ended); }});
}

void ScheduleRecorder::begin_step() {
  bp::synchronize_stream(device_);
  begin_ = since_ = Clock::now();
  const std::chrono::duration<double> between = begin_ - end_;
  file_ << R"({"event":"step","between":)" << between.count() << "}\n";
  is_in_step_ = true;
}

void ScheduleRecorder::end_step() {
  add_compute();
  is_in_step_ = false;
  end_ = Clock::now();
  const std::chrono::duration<double> took = end_ - begin_;
  file_ << R"({"event":"end","seconds":)" << took.count() << "}\n" << std::flush;
  if (!file_) throw std::runtime_error("--record-schedule: " + path_ + " cannot be written");
}

void ScheduleRecorder::add_compute() {
  bp::synchronize_stream(device_);
  const std::chrono::duration<double> took = Clock::now() - since_;
  file_ << R"({"event":"compute","seconds":)" << took.count() << "}\n";
  since_ = Clock::now();
}

void ScheduleRecorder::add_group(const bd::ProcessGroup& group, std::span<const uint32_t> members) {
  groups_[group.name()] = {{members.begin(), members.end()}, group.stream().get()};
  file_ << R"({"event":"group","group":")" << group.name() << R"(","ranks":[)";
  for (size_t i = 0; i < members.size(); ++i) file_ << (i > 0 ? "," : "") << members[i];
  file_ << "]}\n";
}

// Returns the group on whose stream this thread works, or null: it works on that of computing.
const std::string* ScheduleRecorder::group_of_current_stream() const {
  const bp_stream* const stream = bp::current_stream(device_.target());
  if (stream == nullptr) return nullptr;
  for (const auto& [name, group] : groups_) {
    if (group.stream == stream) return &name;
  }
  return nullptr;
}

// A call behind the stream of a group does not wait for what is computed, so it ends no piece of
// computing. The call with which the members of a new group tell who they are comes before
// add_group().
void ScheduleRecorder::add_calls(const bd::ProcessGroup& group, uint64_t number,
                                 std::span<const bd::Collective> calls) {
  if (!is_in_step_) return;
  const auto known = groups_.find(group.name());
  if (known == groups_.end()) return;
  const std::string* const behind = group_of_current_stream();
  if (behind == nullptr) add_compute();
  for (const bd::Collective& call : calls) {
    const auto* kind = std::ranges::find(kKinds, call.kind, &Kind::kind);
    if (kind == std::end(kKinds)) {
      throw std::runtime_error("--record-schedule: the group '" + group.name() +
                               "' makes a call of kind " + std::to_string(call.kind) +
                               ", which has no name in a recording");
    }
    file_ << R"({"event":"call","group":")" << group.name() << R"(","number":)" << number
          << R"(,"call":")" << kind->name << R"(","bytes":)" << bytes_of(call, group.size());
    if (kind->other != nullptr) {
      file_ << ",\"" << kind->other << "\":" << known->second.ranks.at(call.root);
    }
    if (behind != nullptr) file_ << R"(,"behind":")" << *behind << '"';
    file_ << "}\n";
  }
}

// What passes until the call has ended is no computing.
void ScheduleRecorder::add_wait(const std::string& group, uint64_t number, bool has_ended) {
  if (!is_in_step_ || !groups_.contains(group) || group_of_current_stream() != nullptr) return;
  if (!has_ended) return add_compute();
  bp::synchronize_stream(device_);
  file_ << R"({"event":"wait","group":")" << group << R"(","number":)" << number << "}\n";
  since_ = Clock::now();
}

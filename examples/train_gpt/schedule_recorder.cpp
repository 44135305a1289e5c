#include "train_gpt/schedule_recorder.hpp"

#include <algorithm>
#include <stdexcept>

namespace {

namespace bd = bp::distributed;

struct Kind {
  bp_collective_kind kind;
  const char* name;
};
constexpr Kind kKinds[] = {
    {BP_COLLECTIVE_ALL_REDUCE, "all_reduce"}, {BP_COLLECTIVE_REDUCE, "reduce"},
    {BP_COLLECTIVE_BROADCAST, "broadcast"},   {BP_COLLECTIVE_ALL_GATHER, "all_gather"},
    {BP_COLLECTIVE_GATHER, "gather"},         {BP_COLLECTIVE_REDUCE_SCATTER, "reduce_scatter"},
    {BP_COLLECTIVE_SCATTER, "scatter"},       {BP_COLLECTIVE_ALL_TO_ALL, "all_to_all"},
    {BP_COLLECTIVE_BARRIER, "barrier"}};

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
    : path_(path + "." + std::to_string(rank)), ranks_(ranks), device_(device), file_(path_) {
  file_ << R"({"event":"start","rank":)" << rank << R"(,"ranks":)" << ranks << "}\n" << std::flush;
  if (!file_) throw std::runtime_error("--record-schedule: " + path_ + " cannot be written");
}

std::shared_ptr<const bd::CallObserver> ScheduleRecorder::observer() {
  return std::make_shared<bd::CallObserver>(
      bd::CallObserver{.on_submit = [this](const bd::ProcessGroup& group, uint64_t number,
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

void ScheduleRecorder::add_calls(const bd::ProcessGroup& group, uint64_t number,
                                 std::span<const bd::Collective> calls) {
  if (!is_in_step_) return;
  if (group.size() != ranks_) {
    throw std::runtime_error("--record-schedule: the group '" + group.name() + "' has " +
                             std::to_string(group.size()) + " of " + std::to_string(ranks_) +
                             " ranks; allowed: strategies whose groups have all of them");
  }
  add_compute();
  for (const bd::Collective& call : calls) {
    const auto* kind = std::ranges::find(kKinds, call.kind, &Kind::kind);
    if (kind == std::end(kKinds)) {
      throw std::runtime_error("--record-schedule: sends and receives cannot be recorded");
    }
    file_ << R"({"event":"call","group":")" << group.name() << R"(","number":)" << number
          << R"(,"call":")" << kind->name << R"(","bytes":)" << bytes_of(call, ranks_)
          << R"(,"root":)" << call.root << "}\n";
  }
}

// What passes until the call has ended is no computing.
void ScheduleRecorder::add_wait(const std::string& group, uint64_t number, bool has_ended) {
  if (!is_in_step_) return;
  if (!has_ended) return add_compute();
  bp::synchronize_stream(device_);
  file_ << R"({"event":"wait","group":")" << group << R"(","number":)" << number << "}\n";
  since_ = Clock::now();
}

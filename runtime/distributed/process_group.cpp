#include "backplane/runtime/distributed/process_group.hpp"

#include <algorithm>
#include <numeric>

#include "backplane/runtime/autograd.hpp"
#include "backplane/staged.h"
#include "runtime/distributed/group_state.hpp"
#include "runtime/ops/dispatch.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::distributed {
namespace {

bool has_groups(const bp_target& target) {
  return bp_target_has_table(&target, BP_STRUCT_PROCESS_GROUP_OPS) != 0;
}

// Returns the device that carries the calls of `device`, or NULL if it has groups of its own.
const bp_target* transport_of(Device device, const GroupOptions& options) {
  if (!options.transport.empty()) return &Device(options.transport).target();
  if (has_groups(device.target())) return nullptr;
  const bp_registry* const registry = device.target().registry;
  for (uint64_t i = 0; i < bp_registry_target_count(registry); ++i) {
    const bp_target* const target = bp_registry_target(registry, i);
    if (target->properties->device_class == BP_DEVICE_HOST && has_groups(*target)) {
      return target;
    }
  }
  throw Error(BP_UNSUPPORTED,
              std::string("process groups: ") + device.name() +
                  " has none, and no loaded device of the host has any that could carry its calls; "
                  "load one, or name it in GroupOptions::transport");
}

const bp_process_group_ops& table_of(Device device, const GroupOptions& options) {
  const bp_process_group_ops* ops = nullptr;
  const bp_target* const transport = transport_of(device, options);
  const char* const name = options.table_name.c_str();
  check(transport == nullptr ? bp_target_find_process_groups(&device.target(), name, &ops)
                             : bp_staged_groups(&device.target(), transport, name, &ops),
        "process groups");
  return *ops;
}

// Makes the groups of the ranks that live in this process.
void create(std::span<const std::shared_ptr<GroupState>> states, std::span<const uint32_t> ranks,
            uint32_t world_size, const GroupOptions& options) {
  const GroupState& first = *states[0];
  std::vector<bp_device*> devices;
  for (const auto& state : states) devices.push_back(state->device.target().device);
  std::vector<bp_option> list;
  for (const auto& [key, value] : options.options) list.push_back({key.c_str(), value.c_str()});
  const std::string prefix = options.name + "/";
  const auto count = static_cast<uint32_t>(states.size());
  const bp_process_group_desc desc{
      .struct_size = sizeof(bp_process_group_desc),
      .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
      .next = nullptr,
      .devices = devices.data(),
      .ranks = ranks.data(),
      .local_count = count,
      .world_size = world_size,
      .store = first.store == nullptr ? nullptr : &first.store->table(),
      .key_prefix = prefix.c_str(),
      .timeout_ns = timeout_ns(options.timeout),
      .table_name = first.ops.name,
      .option_count = list.size(),
      .options = list.data()};
  std::vector<bp_process_group*> groups(count);
  const bp_status status = first.ops.create(first.ops.self, &desc, groups.data());
  if (status != BP_OK) {
    std::string text = "process_group.create: group '" + options.name + "': " + bp_error_text();
    // The store cannot fill the error slot, so its text is not in that of the backend.
    const std::string of_store = first.store == nullptr ? "" : first.store->table_error();
    if (!of_store.empty()) text += " (the store: " + of_store + ")";
    if (status == BP_UNSUPPORTED && world_size > count && options.transport.empty()) {
      text +=
          "; the option transport names a device of the host, such as cpu, that can carry calls";
    }
    throw Error(status, text);
  }
  const auto local = std::make_shared<LocalRanks>(std::vector(ranks.begin(), ranks.end()));
  for (uint32_t i = 0; i < count; ++i) {
    states[i]->handle = groups[i];
    states[i]->rank = ranks[i];
    states[i]->size = world_size;
    states[i]->local = local;
    states[i]->local_index = i;
  }
}

std::string names_of(std::span<const Collective> calls) {
  if (calls.size() == 1) return kind_name(calls[0].kind);
  return std::to_string(calls.size()) + " calls, first " +
         (calls.empty() ? "none" : kind_name(calls[0].kind));
}

// Keeps the memory of a tensor until the group's stream is done with it.
void use_on_stream(WorkState& work, const Tensor& tensor) {
  if (!tensor) return;
  tensor.record_stream(work.group->stream);
  work.tensors.push_back(tensor);
}

// Submits the calls behind what is on the caller's current stream.
bp_status submit_behind_caller(const GroupState& group,
                               const std::vector<bp_collective_call>& calls) {
  Event ready(group.device);
  ready.record();
  const bp_stream_ops& streams = *group.device.target().streams;
  const bp_status status = streams.wait_event(streams.self, group.stream.get(), ready.get());
  if (status != BP_OK) return status;
  return group.ops.submit(group.ops.self, calls.size(), calls.data(), sizeof(bp_collective_call));
}

// Returns the state of a group that was made from `from`.
std::shared_ptr<GroupState> derive(const GroupState& from, const LocalRanks::Part& made,
                                   const std::string& name) {
  const GroupOptions options{.name = name, .timeout = from.timeout, .observer = from.observer};
  auto state = std::make_shared<GroupState>(from.device, from.ops, options, from.store);
  state->handle = made.group;
  state->local = made.local;
  state->local_index = made.index;
  check(state->ops.rank(state->ops.self, state->handle, &state->rank, &state->size),
        "process_group.rank");
  return state;
}

bool tells_of_groups(const GroupState& group) {
  return group.observer != nullptr && group.observer->on_group;
}

// Tells the observer of a group that was not made from another one.
void introduce(const ProcessGroup& group, GroupState& state) {
  if (!tells_of_groups(state)) return;
  state.members.resize(state.size);
  std::iota(state.members.begin(), state.members.end(), 0U);
  state.observer->on_group(group, state.members);
}

// Tells the observer of a group that was made from `from`. The members tell each other who they
// are.
void introduce(const ProcessGroup& group, GroupState& state, const GroupState& from) {
  if (!tells_of_groups(state)) return;
  const std::vector<int64_t> own{from.members.at(from.rank)};
  const Tensor all = empty({state.size}, BP_I64, state.device);
  group.all_gather(all, from_host(own, {1}, state.device)).wait();
  for (const int64_t rank : all.to_vector<int64_t>()) {
    state.members.push_back(static_cast<uint32_t>(rank));
  }
  state.observer->on_group(group, state.members);
}

}  // namespace

GroupState::~GroupState() { static_cast<void>(ops.destroy(ops.self, handle)); }

std::string GroupState::describe() const {
  return "rank " + std::to_string(rank) + " of " + std::to_string(size) + " of the group '" + name +
         "'";
}

ProcessGroup::ProcessGroup(Device device, uint32_t rank, uint32_t world_size,
                           std::shared_ptr<Store> store, const GroupOptions& options) {
  auto state =
      std::make_shared<GroupState>(device, table_of(device, options), options, std::move(store));
  create({&state, 1}, {&rank, 1}, world_size, options);
  state_ = std::move(state);
  introduce(*this, *state_);
}

std::vector<ProcessGroup> ProcessGroup::make_local(std::span<const Device> devices,
                                                   const GroupOptions& options) {
  if (devices.empty()) {
    throw Error(BP_INVALID_ARGUMENT,
                "ProcessGroup::make_local: the list of devices is empty; allowed: at least one");
  }
  const bp_process_group_ops& ops = table_of(devices[0], options);
  std::vector<std::shared_ptr<GroupState>> states;
  std::vector<uint32_t> ranks;
  for (const Device device : devices) {
    ranks.push_back(static_cast<uint32_t>(ranks.size()));
    states.push_back(std::make_shared<GroupState>(device, ops, options, nullptr));
  }
  create(states, ranks, static_cast<uint32_t>(ranks.size()), options);
  std::vector<ProcessGroup> groups;
  groups.reserve(states.size());
  for (auto& state : states) {
    groups.push_back(ProcessGroup(state));
    introduce(groups.back(), *state);
  }
  return groups;
}

uint32_t ProcessGroup::rank() const { return state_->rank; }
uint32_t ProcessGroup::size() const { return state_->size; }
Device ProcessGroup::device() const { return state_->device; }
const std::string& ProcessGroup::name() const { return state_->name; }
const char* ProcessGroup::table_name() const { return state_->ops.name; }
const Stream& ProcessGroup::stream() const { return state_->stream; }
Duration ProcessGroup::timeout() const { return state_->timeout; }

bool ProcessGroup::supports(bp_collective_kind kind, bp_dtype dtype, Reduction reduction) const {
  const bool reduces = kind == BP_COLLECTIVE_ALL_REDUCE || kind == BP_COLLECTIVE_REDUCE ||
                       kind == BP_COLLECTIVE_REDUCE_SCATTER;
  const bp_status status =
      state_->ops.supports(state_->ops.self, state_->handle, kind,
                           reduces ? static_cast<bp_reduction>(reduction) : 0, dtype);
  if (status == BP_UNSUPPORTED) return false;
  check(status, "process_group.supports");
  return true;
}

Work ProcessGroup::submit(std::span<const Collective> calls) const {
  const std::vector<bp_collective_call> made = make_calls(*state_, calls);
  for (const Collective& call : calls) {
    if (is_grad_enabled() && call.receive && call.receive.requires_grad()) {
      bp::detail::fail_recorded_write(kind_name(call.kind));
    }
  }
  const uint64_t number = state_->submit_count.fetch_add(1) + 1;
  const CallObserver* observer = state_->observer.get();
  if (observer != nullptr && observer->on_submit) observer->on_submit(*this, number, calls);
  auto work = std::make_shared<WorkState>(state_, number, names_of(calls));
  const bp_status status = submit_behind_caller(*state_, made);
  if (status != BP_OK) {
    std::string text = bp_error_text();
    // The stream only says that it has failed. The group says why.
    const std::string why = status == BP_STREAM_FAILED ? error_text() : "";
    if (!why.empty()) text += " (" + why + ")";
    throw Error(status, work->what + " of " + state_->describe() + ": " + text);
  }
  work->done.record(state_->stream);
  for (const Collective& call : calls) {
    use_on_stream(*work, call.send);
    if (call.receive.impl() != call.send.impl()) use_on_stream(*work, call.receive);
    if (call.receive) bp::detail::count_write(call.receive);
  }
  return Work(std::move(work));
}

Work ProcessGroup::all_reduce(const Tensor& tensor, Reduction reduction) const {
  return submit(Collective::all_reduce(tensor, reduction));
}
Work ProcessGroup::reduce(const Tensor& tensor, uint32_t root, Reduction reduction) const {
  return submit(Collective::reduce(tensor, root, reduction));
}
Work ProcessGroup::broadcast(const Tensor& tensor, uint32_t root) const {
  return submit(Collective::broadcast(tensor, root));
}
Work ProcessGroup::all_gather(const Tensor& output, const Tensor& input) const {
  return submit(Collective::all_gather(output, input));
}
Work ProcessGroup::reduce_scatter(const Tensor& output, const Tensor& input,
                                  Reduction reduction) const {
  return submit(Collective::reduce_scatter(output, input, reduction));
}
Work ProcessGroup::all_to_all(const Tensor& output, const Tensor& input) const {
  return submit(Collective::all_to_all(output, input));
}
Work ProcessGroup::gather(const Tensor& output, const Tensor& input, uint32_t root) const {
  return submit(Collective::gather(output, input, root));
}
Work ProcessGroup::scatter(const Tensor& output, const Tensor& input, uint32_t root) const {
  return submit(Collective::scatter(output, input, root));
}
Work ProcessGroup::send(const Tensor& tensor, uint32_t peer) const {
  return submit(Collective::send_to(tensor, peer));
}
Work ProcessGroup::receive(const Tensor& tensor, uint32_t peer) const {
  return submit(Collective::receive_from(tensor, peer));
}
void ProcessGroup::barrier() const { submit(Collective::barrier()).wait(); }

std::optional<ProcessGroup> ProcessGroup::split(std::optional<uint32_t> color, uint32_t key,
                                                const std::string& name) const {
  if (color == UINT32_MAX) {
    throw Error(BP_INVALID_ARGUMENT, "split: the color is 2^32 - 1; allowed: below, or none");
  }
  LocalRanks::Part made;
  try {
    made = state_->local->split(state_->ops, state_->local_index,
                                {state_->handle, color.value_or(UINT32_MAX), key}, state_->timeout);
  } catch (const Error& e) {
    throw Error(e.code(), state_->describe() + ": " + e.what());
  }
  if (!color) return std::nullopt;
  ProcessGroup part(derive(*state_, made, name));
  introduce(part, *part.state_, *state_);
  return part;
}

ProcessGroup ProcessGroup::shrink(std::span<const uint32_t> gone, const std::string& name) const {
  std::vector<uint32_t> ranks(gone.begin(), gone.end());
  if (ranks.empty()) {
    throw Error(BP_INVALID_ARGUMENT,
                state_->describe() + ": shrink: no rank is gone; allowed: at least one");
  }
  for (const uint32_t other : ranks) {
    if (other < size() && other != rank()) continue;
    throw Error(BP_INVALID_ARGUMENT,
                state_->describe() + ": shrink: rank " + std::to_string(other) +
                    " is to be gone; allowed: other ranks, below the size of the group");
  }
  LocalRanks::Part made;
  try {
    made = state_->local->shrink(state_->ops, state_->local_index, state_->handle, ranks,
                                 state_->timeout);
  } catch (const Error& e) {
    throw Error(e.code(), state_->describe() + ": " + e.what());
  }
  ProcessGroup rest(derive(*state_, made, name));
  introduce(rest, *rest.state_, *state_);
  return rest;
}

void ProcessGroup::abort() const {
  check(state_->ops.abort(state_->ops.self, state_->handle), "process_group.abort");
}

bp_status ProcessGroup::status() const {
  return state_->ops.status(state_->ops.self, state_->handle);
}

std::string ProcessGroup::error_text() const {
  if (status() == BP_OK) return "";
  return state_->describe() + ": " + bp_error_text();
}

}  // namespace bp::distributed

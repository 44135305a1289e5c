// Calls of process groups: their makers, and the checks before they go to the table.
#include <numeric>

#include "runtime/distributed/group_state.hpp"
#include "runtime/tensor/tensor_impl.hpp"

namespace bp::distributed {
namespace {

constexpr const char* kKinds[] = {"unknown",    "all_reduce",     "reduce",     "broadcast",
                                  "all_gather", "reduce_scatter", "all_to_all", "gather",
                                  "scatter",    "send",           "receive",    "barrier"};

bool reduces(bp_collective_kind kind) {
  return kind == BP_COLLECTIVE_ALL_REDUCE || kind == BP_COLLECTIVE_REDUCE ||
         kind == BP_COLLECTIVE_REDUCE_SCATTER;
}

[[noreturn]] void refuse(const Collective& call, const std::string& text) {
  throw Error(BP_INVALID_ARGUMENT, std::string(kind_name(call.kind)) + ": " + text);
}

void check_tensor(const GroupState& group, const Collective& call, const Tensor& tensor,
                  const char* what) {
  if (!tensor) return;
  if (!tensor.is_contiguous()) {
    refuse(call, std::string(what) + " has the strides " + to_string(tensor.strides()) +
                     " for the shape " + to_string(tensor.shape()) +
                     "; allowed: a contiguous tensor");
  }
  if (tensor.device() != group.device) {
    refuse(call, std::string(what) + " is on " + tensor.device().name() +
                     "; allowed: " + group.device.name() + ", the device of the group");
  }
}

uint64_t elements(const Tensor& tensor) {
  return tensor ? static_cast<uint64_t>(tensor.numel()) : 0;
}

void check_elements(const Collective& call, const Tensor& tensor, const char* what, uint64_t wanted,
                    const std::string& why) {
  if (elements(tensor) == wanted) return;
  refuse(call, std::string(what) + " has " + std::to_string(elements(tensor)) +
                   " elements; allowed: " + std::to_string(wanted) + ", " + why);
}

// Checks the tensor that has a part for each rank.
void check_whole(const GroupState& group, const Collective& call, const Tensor& whole,
                 const char* what, const std::vector<uint64_t>& counts, uint64_t part) {
  if (counts.empty()) {
    return check_elements(
        call, whole, what, part * group.size,
        std::to_string(part) + " for each of " + std::to_string(group.size) + " ranks");
  }
  const uint64_t sum = std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  check_elements(call, whole, what, sum, "the sum of the counts");
}

void check_counts(const GroupState& group, const Collective& call) {
  for (const auto* counts : {&call.counts, &call.receive_counts}) {
    if (counts->empty() || counts->size() == group.size) continue;
    refuse(call, "there are " + std::to_string(counts->size()) + " counts; allowed: " +
                     std::to_string(group.size) + ", one for each rank, or none");
  }
}

// Checks a call in which one tensor has a part for each rank, and the other one part.
void check_parts(const GroupState& group, const Collective& call, bool sends_whole, bool has_whole,
                 uint64_t part) {
  const Tensor& whole = sends_whole ? call.send : call.receive;
  const char* const whole_name = sends_whole ? "the input" : "the output";
  const char* const part_name = sends_whole ? "the output" : "the input";
  if (!call.counts.empty()) {
    check_elements(call, sends_whole ? call.receive : call.send, part_name, call.counts[group.rank],
                   "the count of this rank");
  }
  if (has_whole) check_whole(group, call, whole, whole_name, call.counts, part);
}

// Returns `count` of the call, after it has checked the elements of the tensors.
uint64_t count_of(const GroupState& group, const Collective& call) {
  const bool is_root = group.rank == call.root;
  check_counts(group, call);
  switch (call.kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
    case BP_COLLECTIVE_REDUCE:
      if (call.receive) {
        check_elements(call, call.receive, "the output", elements(call.send), "as the input has");
      }
      return elements(call.send);
    case BP_COLLECTIVE_ALL_GATHER:
      check_parts(group, call, false, true, elements(call.send));
      return elements(call.send);
    case BP_COLLECTIVE_GATHER:
      check_parts(group, call, false, is_root, elements(call.send));
      return elements(call.send);
    case BP_COLLECTIVE_REDUCE_SCATTER:
      check_parts(group, call, true, true, elements(call.receive));
      return elements(call.receive);
    case BP_COLLECTIVE_SCATTER:
      check_parts(group, call, true, is_root, elements(call.receive));
      return elements(call.receive);
    case BP_COLLECTIVE_ALL_TO_ALL: {
      const auto& received = call.receive_counts.empty() ? call.counts : call.receive_counts;
      const uint64_t part = elements(call.send) / group.size;
      check_whole(group, call, call.send, "the input", call.counts, part);
      check_whole(group, call, call.receive, "the output", received, part);
      return part;
    }
    case BP_COLLECTIVE_SEND:
      return elements(call.send);
    default:
      return elements(call.receive);
  }
}

bp_buffer_ref range_of(const Tensor& tensor) {
  if (!tensor || tensor.numel() == 0) return {};
  const bp_tensor& view = *tensor.get();
  return {view.buffer, view.byte_offset, tensor.size_bytes()};
}

void check_dtypes(const Collective& call) {
  if (!call.send || !call.receive || call.send.dtype() == call.receive.dtype()) return;
  refuse(call, "the input is " + dtype_text(call.send.dtype()) + " and the output is " +
                   dtype_text(call.receive.dtype()) + "; allowed: one dtype");
}

bp_collective_call make_call(const GroupState& group, const Collective& call) {
  check_tensor(group, call, call.send, "the input");
  check_tensor(group, call, call.receive, "the output");
  check_dtypes(call);
  const Tensor& any = call.send ? call.send : call.receive;
  if (!any && call.kind != BP_COLLECTIVE_BARRIER) refuse(call, "no tensor is given");
  if (call.root >= group.size) {
    refuse(call, "the root or peer is rank " + std::to_string(call.root) +
                     "; allowed: below the size of the group, " + std::to_string(group.size));
  }
  return {.struct_size = sizeof(bp_collective_call),
          .struct_type = BP_STRUCT_COLLECTIVE_CALL,
          .next = nullptr,
          .group = group.handle,
          .stream = group.stream.get(),
          .send = range_of(call.send),
          .receive = range_of(call.receive),
          .count = count_of(group, call),
          .counts = call.counts.empty() ? nullptr : call.counts.data(),
          .receive_counts = call.receive_counts.empty() ? nullptr : call.receive_counts.data(),
          .scale = call.scale,
          .timeout_ns = 0,
          .kind = call.kind,
          .reduction = reduces(call.kind) ? static_cast<bp_reduction>(call.reduction) : 0,
          .dtype = any ? any.dtype() : 0,
          .root = call.root};
}

}  // namespace

const char* kind_name(bp_collective_kind kind) {
  return kind < std::size(kKinds) ? kKinds[kind] : kKinds[0];
}

std::vector<bp_collective_call> make_calls(const GroupState& group,
                                           std::span<const Collective> calls) {
  std::vector<bp_collective_call> made;
  made.reserve(calls.size());
  for (const Collective& call : calls) made.push_back(make_call(group, call));
  return made;
}

Collective Collective::all_reduce(const Tensor& tensor, Reduction reduction) {
  return {
      .kind = BP_COLLECTIVE_ALL_REDUCE, .send = tensor, .receive = tensor, .reduction = reduction};
}

Collective Collective::reduce(const Tensor& tensor, uint32_t root, Reduction reduction) {
  return {.kind = BP_COLLECTIVE_REDUCE,
          .send = tensor,
          .receive = tensor,
          .reduction = reduction,
          .root = root};
}

Collective Collective::broadcast(const Tensor& tensor, uint32_t root) {
  return {.kind = BP_COLLECTIVE_BROADCAST, .send = tensor, .receive = tensor, .root = root};
}

Collective Collective::all_gather(const Tensor& output, const Tensor& input) {
  return {.kind = BP_COLLECTIVE_ALL_GATHER, .send = input, .receive = output};
}

Collective Collective::reduce_scatter(const Tensor& output, const Tensor& input,
                                      Reduction reduction) {
  return {.kind = BP_COLLECTIVE_REDUCE_SCATTER,
          .send = input,
          .receive = output,
          .reduction = reduction};
}

Collective Collective::all_to_all(const Tensor& output, const Tensor& input) {
  return {.kind = BP_COLLECTIVE_ALL_TO_ALL, .send = input, .receive = output};
}

Collective Collective::gather(const Tensor& output, const Tensor& input, uint32_t root) {
  return {.kind = BP_COLLECTIVE_GATHER, .send = input, .receive = output, .root = root};
}

Collective Collective::scatter(const Tensor& output, const Tensor& input, uint32_t root) {
  return {.kind = BP_COLLECTIVE_SCATTER, .send = input, .receive = output, .root = root};
}

Collective Collective::send_to(const Tensor& tensor, uint32_t peer) {
  return {.kind = BP_COLLECTIVE_SEND, .send = tensor, .root = peer};
}

Collective Collective::receive_from(const Tensor& tensor, uint32_t peer) {
  return {.kind = BP_COLLECTIVE_RECEIVE, .receive = tensor, .root = peer};
}

Collective Collective::barrier() { return {.kind = BP_COLLECTIVE_BARRIER}; }

}  // namespace bp::distributed

#include "backends/sim/collective.hpp"

#include <algorithm>
#include <numeric>

#include "backends/sim/backend.hpp"
#include "backends/sim/device.hpp"
#include "backends/sim/memory.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/shell/capture.hpp"
#include "backplane/shell/group_checks.hpp"
#include "backplane/shell/shape.hpp"
#include "simulation/network_file.hpp"

namespace bp::sim {
namespace {

class OpenedUse final : public GroupMemory {
 public:
  explicit OpenedUse(Use use) : use_(std::move(use)) {}

  std::byte* open() override {
    use_.open();
    return use_.address();
  }
  void close() override { use_.close(); }

 private:
  const Use use_;
};

// Reads the file of the option `network`. Returns NULL if the option is not given.
std::unique_ptr<Wire> make_wire(const Instance& instance) {
  const std::string& path = instance.options.network;
  if (path.empty()) return nullptr;
  try {
    simulate::Network network = simulate::read_cluster(path).network;
    if (!network.options().slow_ranks.empty()) {
      const std::string text = "option network: the slow_ranks of " + path +
                               " do not count, because simulated devices compute as fast as they "
                               "can; slow_links do";
      instance.host->log_line(instance.host->self, BP_LOG_WARNING, text.c_str());
    }
    return std::make_unique<Wire>(std::move(network));
  } catch (const simulate::NetworkError& e) {
    refuse(BP_INVALID_ARGUMENT, std::string("option network: ") + e.what());
  }
}

simulate::CallKind kind_of(bp_collective_kind kind) {
  using simulate::CallKind;
  switch (kind) {
    case BP_COLLECTIVE_ALL_REDUCE:
      return CallKind::kAllReduce;
    case BP_COLLECTIVE_REDUCE:
      return CallKind::kReduce;
    case BP_COLLECTIVE_BROADCAST:
      return CallKind::kBroadcast;
    case BP_COLLECTIVE_ALL_GATHER:
      return CallKind::kAllGather;
    case BP_COLLECTIVE_REDUCE_SCATTER:
      return CallKind::kReduceScatter;
    case BP_COLLECTIVE_ALL_TO_ALL:
      return CallKind::kAllToAll;
    case BP_COLLECTIVE_GATHER:
      return CallKind::kGather;
    case BP_COLLECTIVE_SCATTER:
      return CallKind::kScatter;
    case BP_COLLECTIVE_SEND:
    case BP_COLLECTIVE_RECEIVE:
      return CallKind::kSend;
    default:
      return CallKind::kBarrier;
  }
}

// Returns the elements of the whole tensor of a call, as simulation/plans.hpp counts them. Parts
// may be uneven; then the sum of all parts counts, and in all_to_all the rank that sends most.
uint64_t elements_of(std::span<const RankCall* const> calls) {
  const RankCall& first = *calls[0];
  const auto sum = [](const std::vector<uint64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), uint64_t{0});
  };
  switch (first.kind) {
    case BP_COLLECTIVE_BARRIER:
      return 0;
    case BP_COLLECTIVE_ALL_TO_ALL: {
      uint64_t most = 0;
      for (const RankCall* call : calls) most = std::max(most, sum(call->send_counts));
      return most;
    }
    case BP_COLLECTIVE_ALL_GATHER:
    case BP_COLLECTIVE_REDUCE_SCATTER:
    case BP_COLLECTIVE_GATHER:
    case BP_COLLECTIVE_SCATTER:
      return sum(first.send_counts);
    default:
      return first.count;
  }
}

}  // namespace

GroupAccess::GroupAccess(const Instance& instance)
    : instance_(instance), wire_(make_wire(instance)) {}

void GroupAccess::check_device(bp_device* device, const char* call) {
  const Device& d = device_of(instance_, device, call);
  if (wire_ == nullptr || d.index() < wire_->rank_count()) return;
  refuse(BP_INVALID_ARGUMENT, std::string(call) + ": device " + std::to_string(d.index()) +
                                  " has no place in the network " + instance_.options.network +
                                  ", which has " + std::to_string(wire_->rank_count()) +
                                  " ranks; describe more of them, or use devices below " +
                                  std::to_string(wire_->rank_count()));
}

bool GroupAccess::deliver(std::span<const RankCall* const> calls,
                          std::span<bp_device* const> devices,
                          const std::function<void()>& arrived) {
  if (wire_ == nullptr) return false;
  const RankCall& first = *calls[0];
  simulate::Call call{.kind = kind_of(first.kind)};
  call.bytes =
      static_cast<double>(elements_of(calls)) * static_cast<double>(dtype_size_bytes(first.dtype));
  if (call.kind == simulate::CallKind::kSend) {
    call.target = 1;  // The sender comes first.
  } else if (call.kind != simulate::CallKind::kBarrier) {
    call.source = first.root;
  }
  std::vector<uint32_t> ranks;
  for (bp_device* device : devices) {
    ranks.push_back(Cards<Instance, Device>::any_device_of(instance_, device, "submit").index());
  }
  wire_->send(call, ranks, arrived);
  return true;
}

uint64_t GroupAccess::generation(bp_device* device) {
  return Cards<Instance, Device>::any_device_of(instance_, device, "generation").generation();
}

std::shared_ptr<Queue> GroupAccess::queue(bp_stream* stream, bp_device* device, const char* call) {
  const Stream& s = stream_of(stream, call);
  check_same_device(s.device, &device_of(instance_, device, call), call, "stream");
  instance_.captures->refuse_collective(stream, std::string(call) + ": ");
  return s.queue;
}

std::shared_ptr<GroupMemory> GroupAccess::memory(const bp_buffer_ref& range, bp_device* device,
                                                 bool is_written, const char* call,
                                                 const char* what) {
  const Buffer& buffer = buffer_of(range.buffer, call, what);
  check_same_device(buffer.device, &device_of(instance_, device, call), call, what);
  return std::make_shared<OpenedUse>(
      use_of(range, is_written ? Access::kWrite : Access::kRead, call, what));
}

}  // namespace bp::sim

#include "conformance/cases/rank_group.hpp"

#include "conformance/numerics/dtype.hpp"

namespace bp::conformance {

std::vector<const bp_target*> devices_of(Context& t) {
  std::vector<const bp_target*> devices;
  for (uint64_t i = 0; i < bp_registry_target_count(t.registry()); ++i) {
    const bp_target* target = bp_registry_target(t.registry(), i);
    if (target->plugin == t.target().plugin) devices.push_back(target);
  }
  return devices;
}

double placed(uint32_t rank, uint64_t i) {
  return static_cast<double>(uint64_t{rank} * 30 + i % 30);
}

void compare(Context& t, const std::vector<double>& got,
             const std::function<double(uint64_t)>& want, const std::string& what) {
  for (uint64_t i = 0; i < got.size(); ++i) {
    if (got[i] == want(i)) continue;
    return t.add({what + ": element " + std::to_string(i) + " is " + std::to_string(got[i]) +
                      ", expected " + std::to_string(want(i)),
                  "values", ""});
  }
}

RankGroup::RankGroup(Context& t, uint32_t size, uint64_t timeout_ns) : context_(t) {
  if ((t.target().table_mask >> BP_STRUCT_PROCESS_GROUP_OPS & 1) == 0) {
    t.not_supported("the backend has no process groups");
  }
  const std::vector<const bp_target*> devices = devices_of(t);
  std::vector<bp_device*> chosen;
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < size; ++rank) {
    const bp_target* target = devices[rank % devices.size()];
    bp_stream* stream = nullptr;
    t.require_ok(target->streams->create(target->streams->self, target->device, nullptr, &stream),
                 "stream.create");
    ranks_.push_back({target, OwnedStream(stream, {target->streams})});
    chosen.push_back(target->device);
    ranks.push_back(rank);
  }
  const bp_process_group_desc desc{.struct_size = sizeof(bp_process_group_desc),
                                   .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
                                   .next = nullptr,
                                   .devices = chosen.data(),
                                   .ranks = ranks.data(),
                                   .local_count = size,
                                   .world_size = size,
                                   .store = nullptr,
                                   .key_prefix = "conformance/",
                                   .timeout_ns = timeout_ns};
  std::vector<bp_process_group*> groups(size);
  const bp_status status = ops().create(ops().self, &desc, groups.data());
  if (status != BP_OK && size > devices.size()) {
    t.not_supported("a group of " + std::to_string(size) + " ranks on " +
                    std::to_string(devices.size()) + " devices is refused: " + bp_error_text());
  }
  t.require_ok(status, "process_group.create");
  for (uint32_t rank = 0; rank < size; ++rank) ranks_[rank].group = groups[rank];
}

RankGroup::~RankGroup() {
  for (const Rank& rank : ranks_) {
    // A rank that still waits for others would hold the memory of the case.
    static_cast<void>(ops().abort(ops().self, rank.group));
    const bp_stream_ops& streams = *rank.target->streams;
    static_cast<void>(streams.synchronize(streams.self, rank.stream.get(), kTimeoutNs));
  }
  for (const Rank& rank : ranks_) static_cast<void>(ops().destroy(ops().self, rank.group));
}

bp_buffer_ref RankGroup::allocate(uint32_t rank, uint64_t size_bytes) {
  const bp_target& target = *ranks_[rank].target;
  const bp_allocator_ops& memory = *target.allocator;
  const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = size_bytes,
                              .usage = BP_MEMORY_COLLECTIVE};
  bp_buffer* buffer = nullptr;
  context_.require_ok(memory.allocate(memory.self, target.device, &desc, &buffer),
                      "memory.allocate");
  buffers_.push_back(OwnedBuffer(buffer, {&memory}));
  const bp_buffer_ref all{buffer, 0, size_bytes};
  const uint8_t poison = 0xA5;
  context_.require_ok(memory.fill(memory.self, stream(rank), &all, &poison, 1), "memory.fill");
  return all;
}

void RankGroup::store(uint32_t rank, const bp_buffer_ref& to, bp_dtype dtype,
                      const ValueOf& value) {
  const uint64_t item = element_size(dtype);
  std::vector<std::byte> bytes(to.size_bytes);
  for (uint64_t i = 0; i < to.size_bytes / item; ++i) {
    store_element(dtype, DoubleDouble(value(rank, i)), &bytes[i * item]);
  }
  const bp_allocator_ops& memory = *ranks_[rank].target->allocator;
  context_.require_ok(
      memory.copy_from_host(memory.self, stream(rank), &to, bytes.data(), BP_BORROW_DURING_CALL),
      "memory.copy_from_host");
}

std::vector<uint8_t> RankGroup::bytes(uint32_t rank, const bp_buffer_ref& from) {
  std::vector<uint8_t> bytes(from.size_bytes);
  const bp_allocator_ops& memory = *ranks_[rank].target->allocator;
  context_.require_ok(
      memory.copy_to_host(memory.self, stream(rank), bytes.data(), &from, BP_BORROW_DURING_CALL),
      "memory.copy_to_host");
  return bytes;
}

std::vector<double> RankGroup::load(uint32_t rank, const bp_buffer_ref& from, bp_dtype dtype) {
  const std::vector<uint8_t> raw = bytes(rank, from);
  const uint64_t item = element_size(dtype);
  std::vector<double> values;
  for (uint64_t i = 0; i < raw.size() / item; ++i) {
    const auto* at = reinterpret_cast<const std::byte*>(raw.data()) + i * item;
    values.push_back(load_element(dtype, at).hi);
  }
  return values;
}

bp_collective_call RankGroup::call(uint32_t rank, bp_collective_kind kind, bp_dtype dtype,
                                   uint64_t count, bp_reduction reduction, uint32_t root) const {
  return {.struct_size = sizeof(bp_collective_call),
          .struct_type = BP_STRUCT_COLLECTIVE_CALL,
          .next = nullptr,
          .group = group(rank),
          .stream = stream(rank),
          .send = {},
          .receive = {},
          .count = count,
          .counts = nullptr,
          .receive_counts = nullptr,
          .scale = 1,
          .tag = 0,
          .timeout_ns = 0,
          .kind = kind,
          .reduction = reduction,
          .dtype = dtype,
          .root = root};
}

bp_status RankGroup::submit(const std::vector<bp_collective_call>& calls) const {
  return ops().submit(ops().self, calls.size(), calls.data(), sizeof(bp_collective_call));
}

bp_status RankGroup::outcome(uint32_t rank) {
  const bp_stream_ops& streams = *ranks_[rank].target->streams;
  return streams.synchronize(streams.self, stream(rank), kTimeoutNs);
}

void RankGroup::finish_all() {
  for (uint32_t rank = 0; rank < size(); ++rank) {
    context_.require_ok(outcome(rank), "the stream of rank " + std::to_string(rank));
  }
}

}  // namespace bp::conformance

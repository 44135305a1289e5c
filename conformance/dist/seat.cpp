#include "conformance/dist/seat.hpp"

#include <algorithm>
#include <bit>

namespace bp::conformance::dist {
namespace {

void require(bp_status status, const char* what) {
  if (status != BP_OK) throw RankError(std::string(what) + ": " + failure_text(status));
}

OwnedStream make_stream(const bp_target& target) {
  bp_stream* stream = nullptr;
  require(target.streams->create(target.streams->self, target.device, nullptr, &stream),
          "stream.create");
  return OwnedStream(stream, {target.streams});
}

}  // namespace

Answer Answer::of(bp_status status) {
  return {status, status == BP_OK ? "" : failure_text(status)};
}

Answer Group::destroy() {
  if (group_ == nullptr) return {};
  bp_process_group* const group = std::exchange(group_, nullptr);
  return Answer::of(ops_->destroy(ops_->self, group));
}

bp_buffer_ref Range::part(uint64_t at, uint64_t bytes) const {
  if (bytes == 0) return {};
  return {all.buffer, all.byte_offset + offset + at, bytes};
}

Seat::Seat(const Backend& backend, const RankTask& task, FolderStore& store)
    : target_(*backend.targets()[task.rank % backend.targets().size()]),
      task_(task),
      store_(store),
      stream_(make_stream(target_)) {}

Answer Seat::create(const Wish& wish, Group& out_group) {
  std::vector<bp_option> options;
  for (const auto& [key, value] : task_.group_options) {
    options.push_back({key.c_str(), value.c_str()});
  }
  const bp_process_group_desc desc{.struct_size = sizeof(bp_process_group_desc),
                                   .struct_type = BP_STRUCT_PROCESS_GROUP_DESC,
                                   .next = nullptr,
                                   .devices = &target_.device,
                                   .ranks = &wish.rank,
                                   .local_count = 1,
                                   .world_size = wish.world_size,
                                   .store = store_.table_for(wish.prefix),
                                   .key_prefix = wish.prefix.c_str(),
                                   .timeout_ns = wish.timeout_ns,
                                   .table_name = nullptr,
                                   .option_count = options.size(),
                                   .options = options.data()};
  bp_process_group* group = nullptr;
  const bp_status status = wish.ops->create(wish.ops->self, &desc, &group);
  if (status == BP_OK) out_group = Group(*wish.ops, group);
  return Answer::of(status);
}

Range Seat::reserve(int slot, uint64_t size_bytes, uint64_t offset) {
  if (slots_.size() <= static_cast<size_t>(slot)) slots_.resize(static_cast<size_t>(slot) + 1);
  Slot& place = slots_[static_cast<size_t>(slot)];
  const uint64_t needed = kGuardBytes + offset + size_bytes + kGuardBytes;
  if (place.capacity < needed) {
    place.buffer.reset();
    const bp_allocator_ops& memory = *target_.allocator;
    const bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = std::bit_ceil(needed),
                                .usage = BP_MEMORY_COLLECTIVE};
    bp_buffer* buffer = nullptr;
    require(memory.allocate(memory.self, target_.device, &desc, &buffer), "memory.allocate");
    place.buffer = OwnedBuffer(buffer, {&memory});
    place.capacity = desc.size_bytes;
  }
  return {{place.buffer.get(), 0, needed}, kGuardBytes + offset, size_bytes};
}

void Seat::write(const Range& to, std::span<const std::byte> bytes) {
  std::vector<std::byte> image(to.all.size_bytes, kPoison);
  std::ranges::copy(bytes, image.begin() + static_cast<std::ptrdiff_t>(to.offset));
  const bp_allocator_ops& memory = *target_.allocator;
  require(
      memory.copy_from_host(memory.self, stream(), &to.all, image.data(), BP_BORROW_DURING_CALL),
      "memory.copy_from_host");
}

std::vector<std::byte> Seat::read(const Range& from) {
  std::vector<std::byte> bytes(from.all.size_bytes);
  const bp_allocator_ops& memory = *target_.allocator;
  require(memory.copy_to_host(memory.self, stream(), bytes.data(), &from.all, BP_BORROW_DURING_CALL,
                              UINT64_MAX),
          "memory.copy_to_host");
  return bytes;
}

Answer Seat::submit(const Group& group, std::span<const bp_collective_call> calls) const {
  const bp_process_group_ops& ops = group.ops();
  return Answer::of(ops.submit(ops.self, calls.size(), calls.data(), sizeof(bp_collective_call)));
}

Answer Seat::synchronize(uint64_t timeout_ns) const {
  return Answer::of(target_.streams->synchronize(target_.streams->self, stream(), timeout_ns));
}

Answer Seat::stream_status() const {
  return Answer::of(target_.streams->status(target_.streams->self, stream()));
}

void Seat::clear_failure() const {
  static_cast<void>(target_.streams->clear_failure(target_.streams->self, stream()));
}

bp_collective_call call_of(const Seat& seat, const Group& group, bp_collective_kind kind,
                           bp_reduction reduction, bp_dtype dtype, uint64_t count) {
  return {.struct_size = sizeof(bp_collective_call),
          .struct_type = BP_STRUCT_COLLECTIVE_CALL,
          .next = nullptr,
          .group = group.get(),
          .stream = seat.stream(),
          .send = {},
          .receive = {},
          .count = count,
          .counts = nullptr,
          .receive_counts = nullptr,
          .scale = 1,
          .timeout_ns = 0,
          .kind = kind,
          .reduction = reduction,
          .dtype = dtype,
          .root = 0};
}

}  // namespace bp::conformance::dist

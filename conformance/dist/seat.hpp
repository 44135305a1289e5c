// The place of one rank: its device, a stream, memory, and the groups that it makes.
//
// Rules:
//   Threads    One thread uses a seat, except that abort() of a group may come from another.
//   Errors     Functions throw RankError if the device fails at what is not under test: allocations
//              and copies. Statuses of process groups are results, and are returned.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/dist/backend.hpp"
#include "conformance/dist/folder_store.hpp"
#include "conformance/dist/task.hpp"

namespace bp::conformance::dist {

// What a call returned, with its text.
struct Answer {
  bp_status status = BP_OK;
  std::string text;  // The text of a failure, with the name of the status.

  bool is_ok() const { return status == BP_OK; }
  static Answer of(bp_status status);
};

// A group of this process, which it destroys.
class Group {
 public:
  Group() = default;
  Group(const bp_process_group_ops& ops, bp_process_group* group) : ops_(&ops), group_(group) {}
  ~Group() { static_cast<void>(destroy()); }
  Group(Group&& other) noexcept { *this = std::move(other); }
  Group& operator=(Group&& other) noexcept {
    std::swap(ops_, other.ops_);
    std::swap(group_, other.group_);
    return *this;
  }

  const bp_process_group_ops& ops() const { return *ops_; }
  bp_process_group* get() const { return group_; }
  bool is_made() const { return group_ != nullptr; }

  Answer status() const { return Answer::of(ops_->status(ops_->self, group_)); }
  Answer destroy();

 private:
  const bp_process_group_ops* ops_ = nullptr;
  bp_process_group* group_ = nullptr;
};

// The bytes of a slot: a guard, the range itself at an odd element, and a guard.
struct Range {
  bp_buffer_ref all{};  // With the guards.
  uint64_t offset = 0;  // Of the range in `all`.
  uint64_t size_bytes = 0;

  // Returns a part of the range, or a ref that is all zero if it has no bytes.
  bp_buffer_ref part(uint64_t at, uint64_t bytes) const;
};

class Seat {
 public:
  // The task must live as long.
  Seat(const Backend& backend, const RankTask& task, FolderStore& store);

  // What create() of a group is told.
  struct Wish {
    const bp_process_group_ops* ops = nullptr;
    std::string prefix;
    uint32_t rank = 0, world_size = 1;
    uint64_t timeout_ns = 0;
  };
  Answer create(const Wish& wish, Group& out_group);

  bp_stream* stream() const { return stream_.get(); }
  const bp_target& target() const { return target_; }

  // Returns memory of at least this size. Slots live as long as the seat; a larger request replaces
  // the memory of its slot.
  Range reserve(int slot, uint64_t size_bytes, uint64_t offset);

  void write(const Range& to, std::span<const std::byte> bytes);
  // Returns the bytes of the range and of its guards.
  std::vector<std::byte> read(const Range& from);

  Answer submit(const Group& group, std::span<const bp_collective_call> calls) const;
  // Waits for the stream, but no longer than the timeout.
  Answer synchronize(uint64_t timeout_ns) const;
  // Returns the failure of the stream, or BP_OK.
  Answer stream_status() const;
  void clear_failure() const;

  static constexpr uint64_t kGuardBytes = 64;
  static constexpr std::byte kPoison{0xA5};

 private:
  const bp_target& target_;
  const RankTask& task_;
  FolderStore& store_;
  OwnedStream stream_;
  struct Slot {
    OwnedBuffer buffer;
    uint64_t capacity = 0;
  };
  std::vector<Slot> slots_;
};

// Returns a call without memory, of the group's rank.
bp_collective_call call_of(const Seat& seat, const Group& group, bp_collective_kind kind,
                           bp_reduction reduction, bp_dtype dtype, uint64_t count);

}  // namespace bp::conformance::dist

// What one rank of a process group submitted, read and checked, with the memory and the stream that
// it names.
//
// Rules:
//   Threads    Every function may be called from any thread.
//   Errors     A function throws StatusError, whose text begins with `name`, such as
//              "submit: call 2: ", or with `call`, the name of an entry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "backplane/collective.h"
#include "backplane/shell/group_checks.hpp"
#include "backplane/shell/queue.hpp"

namespace bp {

// Memory of a backend that a call reads or writes. The memory is open while the call runs.
class GroupMemory {
 public:
  virtual ~GroupMemory() = default;
  virtual std::byte* open() = 0;  // Throws StatusError.
  virtual void close() = 0;
};

// Opens memory and closes it in its destructor. A call that has no such memory has NULL.
class OpenedMemory {
 public:
  explicit OpenedMemory(GroupMemory* memory)
      : memory_(memory), address_(memory == nullptr ? nullptr : memory->open()) {}
  ~OpenedMemory() {
    if (memory_ != nullptr) memory_->close();
  }
  OpenedMemory(const OpenedMemory&) = delete;
  std::byte* address() const { return address_; }

 private:
  GroupMemory* const memory_;
  std::byte* const address_;
};

struct RankCall;

// How groups reach the streams and the memory of their backend. The functions throw StatusError if
// an argument is not of `device`, or if a range leaves its buffer; the error text contains `call`
// and `what`.
class GroupBackend {
 public:
  virtual ~GroupBackend() = default;
  virtual void check_device(bp_device* device, const char* call) = 0;
  // Returns the number of resets of the device, which loses the groups from before at each.
  virtual uint64_t generation(bp_device* /*device*/) { return 0; }
  virtual std::shared_ptr<Queue> queue(bp_stream* stream, bp_device* device, const char* call) = 0;
  virtual std::shared_ptr<GroupMemory> memory(const bp_buffer_ref& range, bp_device* device,
                                              bool is_written, const char* call,
                                              const char* what) = 0;
  // Lets `arrived` run when the data of a call has crossed the wires between its ranks, which all
  // have come. `calls` has what each rank submitted, and `devices` where it lives. Returns false,
  // and does not keep `arrived`, if that takes no time.
  virtual bool deliver(std::span<const RankCall* const> /*calls*/,
                       std::span<bp_device* const> /*devices*/,
                       const std::function<void()>& /*arrived*/) {
    return false;
  }
};

// What one rank submitted.
struct RankCall : GroupCall {
  uint64_t timeout_ns = 0;
  std::shared_ptr<GroupMemory> send, receive;  // NULL if the kind has none.
  std::shared_ptr<Queue> queue;
  std::shared_ptr<Point> done = std::make_shared<Point>(false);
};

// The rank that submits a call.
struct RankPlace {
  uint32_t rank, world_size;
  bp_device* device;
};

// Returns why groups that reduce by combine.hpp do not run calls of this kind, or "" if they do.
std::string refuse_combined(bp_collective_kind kind, bp_reduction reduction, bp_dtype dtype);

// Reads a call of the rank at `place` into `call`, with all checks of its arguments.
void read_rank_call(GroupBackend& backend, const bp_collective_call& theirs, const RankPlace& place,
                    const std::string& name, RankCall& call);

// Returns how `work` ended, which may throw.
Outcome outcome_of(const std::function<void()>& work);

}  // namespace bp

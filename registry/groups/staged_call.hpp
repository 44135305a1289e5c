// One call of a staged group: its memory on the host, and its steps.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backplane/collective.h"
#include "registry/groups/staged_courier.hpp"
#include "registry/services/gate.hpp"
#include "registry/state/state.hpp"

namespace bp::core {

// One rank of a staged group.
struct StagedGroup {
  static constexpr uint32_t kMagic = 0x73746764;

  uint32_t magic = kMagic;
  const bp_target* target = nullptr;  // The device of the rank.
  bp_process_group* inner = nullptr;  // Of the transport.
  uint32_t rank = 0, world_size = 0;
  // The stream of the transport for each stream of the device. One thread at a time submits.
  std::vector<std::pair<bp_stream*, bp_stream*>> streams = {};
};

// How many bytes a call sends and receives, as collective.h tells it. A number that 64 bits do not
// hold is UINT64_MAX.
struct StagedSizes {
  uint64_t sent = 0, received = 0;
};
StagedSizes staged_sizes(const bp_collective_call& call, uint32_t rank, uint32_t world_size);

// Returns the chunks of a call. They are the call itself, unless it reduces or broadcasts more than
// one chunk. Each rank makes the same chunks.
std::vector<bp_collective_call> chunks_of(const bp_collective_call& call, const StagedSizes& sizes);

// Pinned memory of a device, or plain memory where the device has none that it may use while the
// host does. The transport sees it as a buffer too.
class StagedMemory {
 public:
  static bp_status make(const bp_target& target, const bp_target& transport, uint64_t size_bytes,
                        std::unique_ptr<StagedMemory>& out_memory);
  StagedMemory() = default;
  StagedMemory(const StagedMemory&) = delete;
  ~StagedMemory();

  // Return a range for work of the transport, and for work of the device.
  bp_buffer_ref transport_ref(uint64_t byte_offset, uint64_t size_bytes) const {
    return {buffer_, byte_offset, size_bytes};
  }
  bp_buffer_ref device_ref(uint64_t byte_offset, uint64_t size_bytes) const {
    return {pinned_.buffer, pinned_.byte_offset + byte_offset, size_bytes};
  }
  bool is_pinned() const { return pinned_.buffer != nullptr; }
  unsigned char* bytes() const { return bytes_; }
  // The transport needs the memory no longer than the work of its stream lasts, or no longer if
  // `stream` is NULL.
  void leave_transport(bp_stream* stream);

 private:
  bp_status wrap(const bp_target& transport, uint64_t size_bytes);

  std::vector<unsigned char> own_;        // Empty for pinned memory.
  std::shared_ptr<services::Loan> loan_;  // Of pinned memory.
  unsigned char* bytes_ = nullptr;
  bp_buffer_ref pinned_{};
  const bp_target* transport_ = nullptr;
  bp_buffer* buffer_ = nullptr;
};

// A call, or a chunk of one. Its steps come in this order:
//
//   collect()   device: copies what is sent to the host      then opens the gate of the transport
//   to_inner()  the call that the transport runs behind that gate
//   leave()     transport: opens the gate of the device behind the call
//   deliver()   device: waits at that gate, then copies what was received to its place
//
// Without pinned memory, the courier copies to the device before that gate opens.
//
// A call that the transport refuses ends with abandon() behind collect().
class StagedCall {
 public:
  // Checks the ranges of a call, and takes its memory. `name` begins the texts of its errors.
  static bp_status make(StagedGroup& group, const bp_target& transport, StagedCourier& courier,
                        const bp_collective_call& theirs, const std::string& name,
                        std::unique_ptr<StagedCall>& out_call);

  bp_status collect();
  bp_status to_inner(bp_collective_call& out_call);
  void leave();
  bp_status deliver();
  void abandon();

 private:
  // A range of the device, and where it lies in pinned memory.
  struct Side {
    bp_buffer_ref range{};
    uint64_t offset = 0;
    StagedMemory* memory = nullptr;  // NULL if there are no bytes.

    bp_buffer_ref on_transport() const {
      return memory == nullptr ? bp_buffer_ref{} : memory->transport_ref(offset, range.size_bytes);
    }
    bp_buffer_ref on_device() const { return memory->device_ref(offset, range.size_bytes); }
  };
  using Memory = std::vector<std::shared_ptr<StagedMemory>>;

  StagedCall(StagedGroup& group, const bp_target& transport, StagedCourier& courier,
             const bp_collective_call& theirs)
      : group_(group), transport_(transport), courier_(courier), call_(theirs) {}
  bp_status check(const bp_buffer_ref& range, const std::string& name) const;
  bp_status take_memory();
  bp_status take_memory(uint64_t size_bytes, StagedMemory*& out_memory);
  bp_status make_gates();
  bp_status find_stream();
  bp_status copy(const bp_buffer_ref& dst, const bp_buffer_ref& src) const;
  bp_status read_range() const;
  void send_courier() const;
  bool needs_courier() const { return receive_.memory != nullptr && !receive_.memory->is_pinned(); }
  services::Completion keep_memory();

  StagedGroup& group_;
  const bp_target& transport_;
  StagedCourier& courier_;
  bp_collective_call call_;
  bp_stream* stream_ = nullptr;  // Of the transport.
  Side send_, receive_;
  Memory memory_;
  std::shared_ptr<services::Gate> collected_, finished_;
};

}  // namespace bp::core

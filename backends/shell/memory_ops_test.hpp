// A backend for the tests of the allocator's table. Its devices have the memory of the host.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "backplane/shell/memory_ops.hpp"

namespace bp::memory_ops_test {

struct Buffer;

struct Card {
  bool add(Buffer* buffer);
  void remove(Buffer* buffer) { buffers.remove(buffer); }
  bool find(uint64_t address, bp_address_info& info) { return buffers.find(address, info); }
  bool is_lost() const { return lost; }
  bp_device_properties properties() const { return {.host_register_alignment_bytes = 4}; }

  bool lost = false, is_out_of_memory = false;
  BufferSet<Buffer> buffers;
};

struct Machine {
  const bp_host* host;
  std::vector<std::unique_ptr<Card>> cards;
  bool has_addresses = true;
  mutable std::string calls;  // The names of the entries that reached the backend.
};

struct Stream : DeviceHandle<Card> {
  static constexpr uint32_t kMagic = 1;
  explicit Stream(Card& card) : DeviceHandle(kMagic, card) {}

  bp_stream* handle() { return reinterpret_cast<bp_stream*>(this); }
};

enum class Kind : uint8_t { kOwner, kWrapped, kRegistered, kReserved, kImported };

struct Buffer : DeviceHandle<Card> {
  static constexpr uint32_t kMagic = 2;
  Buffer(Card& card, uint64_t its_size_bytes)
      : DeviceHandle(kMagic, card), size_bytes(its_size_bytes) {}

  // Byte 7 may not be written.
  void check_access(const char* call, const char* name, const bp_buffer_ref& range,
                    bp_access access) const {
    const bool has_7 = range.byte_offset <= 7 && range.byte_offset + range.size_bytes > 7;
    if (!is_guarded || access == BP_ACCESS_READ || !has_7) return;
    refuse(BP_INVALID_ARGUMENT, std::string(call) + ": " + name + ": byte 7 is not written");
  }
  void end_memory() const { ++*ended; }

  const uint64_t size_bytes;
  uint64_t address = 0;
  Kind kind = Kind::kOwner;
  bool is_guarded = false;
  int* ended = nullptr;
  std::vector<std::byte> memory;
  std::mutex mutex;
  std::vector<void*> maps;
};

inline bool Card::add(Buffer* buffer) {
  if (is_out_of_memory) throw std::bad_alloc();
  return buffers.add(buffer, buffer->address, buffer->kind == Kind::kOwner);
}

struct Traits : Cards<Machine, Card> {
  using Stream = memory_ops_test::Stream;
  using Buffer = memory_ops_test::Buffer;
  using Range = BufferRange<Buffer>;

  static std::byte* at(const Range& r) { return r.buffer.memory.data() + r.byte_offset; }
  static void note(const Machine& i, const char* call) { i.calls += std::string(call) + " "; }

  static std::unique_ptr<Buffer> allocate(Card& card, const bp_allocate_desc& request) {
    auto b = std::make_unique<Buffer>(card, request.size_bytes);
    b->memory.resize(request.size_bytes);
    b->address = reinterpret_cast<uintptr_t>(b->memory.data());
    return b;
  }
  static bp_status deallocate(const Machine& i, Buffer& b, const Stream* s) {
    note(i, s == nullptr ? "deallocate" : "deallocate-behind");
    take_back(b);
    return BP_OK;
  }
  static uint64_t address_of(const Buffer& b) { return b.address; }
  static const char* why_no_address(const Machine& i) {
    return i.has_addresses ? nullptr : "there are none";
  }
  static uint64_t heap_of(const Buffer& b) { return b.kind == Kind::kWrapped ? UINT64_MAX : 1; }
  static bool is_wrapped(const Buffer& b) { return b.kind == Kind::kWrapped; }
  static bool is_registered(const Buffer& b) { return b.kind == Kind::kRegistered; }
  static bool is_reserved(const Buffer& b) { return b.kind == Kind::kReserved; }
  static void check_map(const Buffer& b) { check_mappable(b.kind != Kind::kWrapped, false); }
  static void* map(const Range& range) { return at(range); }

  static bool is_local(const Stream& s, const Buffer& b) { return s.device == b.device; }
  static bp_status copy(const Machine& i, Stream&, const Range& dst, const Range& src,
                        const char* call) {
    note(i, call);
    copy_bytes(at(dst), at(src), dst.size_bytes);
    return BP_OK;
  }
  static bp_status copy_from_host(const Machine&, Stream&, const Range& dst, const void* src,
                                  bp_borrow) {
    copy_bytes(at(dst), src, dst.size_bytes);
    return BP_OK;
  }
  static bp_status copy_to_host(const Machine&, Stream&, void* dst, const Range& src, bp_borrow,
                                uint64_t timeout_ns) {
    if (timeout_ns == 0) refuse_timeout("copy_to_host", timeout_ns);
    copy_bytes(dst, at(src), src.size_bytes);
    return BP_OK;
  }
  static bp_status fill(const Machine&, Stream&, const Range& dst, const std::byte* pattern,
                        uint64_t pattern_size_bytes) {
    fill_bytes(at(dst), dst.size_bytes, pattern, pattern_size_bytes);
    return BP_OK;
  }
  static bool can_access(const Machine&, const Card& card, const Card& peer) {
    return &card != &peer;
  }

  static std::unique_ptr<Buffer> wrap(Card& card, uint64_t address, uint64_t size_bytes) {
    auto b = std::make_unique<Buffer>(card, size_bytes);
    b->address = address;
    b->kind = Kind::kWrapped;
    return b;
  }
};

struct TraitsWithMore : Traits {
  static void check_peers(const Machine&, const Buffer& dst, const Buffer&) {
    if (dst.is_guarded) refuse(BP_UNSUPPORTED, "copy_peer: dst is guarded");
  }
  static std::unique_ptr<Buffer> register_host(Card& card, void* memory, uint64_t size_bytes) {
    auto b = wrap(card, reinterpret_cast<uintptr_t>(memory), size_bytes);
    b->kind = Kind::kRegistered;
    return b;
  }
  static void unregister_host(const std::unique_ptr<Buffer>& b) { b->end_memory(); }
  static const MemoryFile* exported_file(const Buffer&) { return nullptr; }
  static std::unique_ptr<Buffer> import_buffer(Card& card, const bp_external_handle& external) {
    auto b = wrap(card, 4096, external.size_bytes);
    b->kind = Kind::kImported;
    return b;
  }
  static bool is_imported(const Buffer& b) { return b.kind == Kind::kImported; }
  static void unmap(Buffer& b) { b.address += 1; }
  static void flush(const BufferRange<Buffer>& range) { range.buffer.address += 10; }
  static void invalidate(const BufferRange<Buffer>& range) { range.buffer.address += 100; }
};

class MemoryTable : public testing::Test {
 protected:
  MemoryTable() {
    host.self = this;
    host.set_error = [](void* self, bp_status status, const char* reason) {
      static_cast<MemoryTable*>(self)->text = reason;
      return status;
    };
    for (int k = 0; k < 2; ++k) {
      machine.cards.push_back(std::make_unique<Card>());
      streams.emplace_back(*machine.cards.back());
    }
  }
  ~MemoryTable() override {
    for (const auto& card : machine.cards) {
      card->buffers.end_all([](Buffer* buffer) { delete buffer; });
    }
  }

  bp_device* device(size_t index = 0) { return Traits::device_at(machine, index); }
  Stream& stream(size_t index = 0) { return streams[index]; }

  bp_buffer* make(uint64_t size_bytes, size_t index = 0) {
    const bp_allocate_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_ALLOCATE_DESC,
                                .size_bytes = size_bytes};
    bp_buffer* buffer = nullptr;
    EXPECT_EQ(ops.allocate(&machine, device(index), &desc, &buffer), BP_OK) << text;
    object(buffer).ended = &ended_count;
    return buffer;
  }
  static Buffer& object(bp_buffer* handle) { return *reinterpret_cast<Buffer*>(handle); }

  bp_status copy(const bp_buffer_ref& dst, const bp_buffer_ref& src, size_t index = 0) {
    return more.copy(&machine, stream(index).handle(), &dst, &src);
  }
  bp_status copy_peer(const bp_buffer_ref& dst, const bp_buffer_ref& src, size_t index) {
    return more.copy_peer(&machine, stream(index).handle(), &dst, &src);
  }
  bp_status fill(const bp_buffer_ref& dst) {
    return ops.fill(&machine, stream().handle(), &dst, "x", 1);
  }

  bp_host host{};
  Machine machine{.host = &host, .cards = {}};
  std::string text;
  int ended_count = 0;
  const bp_allocator_ops ops = MemoryOps<Traits>::table();
  const bp_allocator_ops more = MemoryOps<TraitsWithMore>::table();
  std::vector<Stream> streams;  // One of each device.
};

}  // namespace bp::memory_ops_test

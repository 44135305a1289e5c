// Memory that work reads and writes. Pages is the kind that the device allocates: whole pages of
// the host that nobody can access unless work has opened them.
//
//   [ guard page ][ size_bytes | slack, with a canary ][ guard page ]
//                 ^ address()
//
// If the host accesses closed memory, or work accesses memory that it did not open, the access
// faults at once. The slack fills the last page. A write to the slack is found when the memory is
// freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "backends/sim/card.hpp"

namespace bp {

class MemoryFile;

}  // namespace bp

namespace bp::sim {

enum class Access : uint8_t { kRead, kWrite };

// Memory of any kind at an address of this process. It is safe from any thread.
class Memory : public std::enable_shared_from_this<Memory> {
 public:
  virtual ~Memory() = default;
  Memory(const Memory&) = delete;

  std::byte* address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }
  size_t heap() const { return heap_; }

  // Throws StatusError of BP_INVALID_ARGUMENT, whose text begins with `what`, if work may not use
  // the range with `access`.
  virtual void check(const std::string& what, uint64_t byte_offset, uint64_t size_bytes,
                     Access access) const;

  // Lets this process read, or read and write, a range until close() was called as often as open().
  // Throws StatusError if the memory does not exist yet, or not any more.
  virtual void open(uint64_t byte_offset, uint64_t size_bytes, Access access) = 0;
  virtual void close(Access access) = 0;

  // Ends the memory. Its room in the heap is free again, and open() fails.
  virtual void discard() = 0;

  // The number of overwritten bytes of the slack, and the offset of the first of them from
  // address().
  struct Damage {
    uint64_t count = 0, first_byte = 0;
  };
  virtual Damage damage() { return {}; }

  // Returns the file by which other processes take the memory, or NULL if it cannot be shared.
  virtual const MemoryFile* file() const { return nullptr; }

 protected:
  Memory(size_t heap, uint64_t size_bytes) : heap_(heap), size_bytes_(size_bytes) {}

  const size_t heap_;
  const uint64_t size_bytes_;
  std::byte* address_ = nullptr;
};

class Pages final : public Memory {
 public:
  // These functions throw StatusError of BP_OUT_OF_MEMORY if the heap or the system has no room.
  // share() puts the content in `file`, which other processes may have. take() takes the memory of
  // another process.
  static std::shared_ptr<Pages> allocate(const Place& place, uint64_t size_bytes);
  static std::shared_ptr<Pages> share(const Place& place, uint64_t size_bytes,
                                      std::unique_ptr<MemoryFile> file);
  static std::shared_ptr<Pages> take(const Place& place, uint64_t size_bytes,
                                     const MemoryFile& file);

  // allocate(), share() and take() call it, and then finish the object. `file` may be NULL.
  Pages(const char* call, const Place& place, uint64_t size_bytes, const MemoryFile* file);
  ~Pages() override;

  void open(uint64_t byte_offset, uint64_t size_bytes, Access access) override;
  void close(Access access) override;
  void discard() override;
  Damage damage() override;
  const MemoryFile* file() const override { return file_.get(); }

  // Memory of a stream-ordered allocation does not exist before begin().
  void make_unborn() { is_born_ = false; }
  void begin() { is_born_ = true; }

 private:
  static std::shared_ptr<Pages> make(const char* call, const Place& place, uint64_t size_bytes,
                                     const MemoryFile* file);
  void write_canary();
  uint64_t data_bytes() const { return total_bytes_ - 2 * page_bytes_; }
  uint64_t slack_bytes() const { return data_bytes() - size_bytes_; }
  bool protect();
  void unmap();

  const std::shared_ptr<Card> card_;
  const uint64_t generation_;
  const bool is_protected_;
  const uint64_t page_bytes_, total_bytes_;
  Room room_;
  std::unique_ptr<MemoryFile> file_;
  std::byte* base_ = nullptr;
  std::atomic<bool> is_born_ = true;

  std::mutex mutex_;  // It guards the members below.
  uint32_t readers_ = 0, writers_ = 0;
  int protection_;
  bool is_discarded_ = false, is_mapped_ = true;
};

// A range of memory that work reads or writes.
struct Use {
  std::byte* address() const { return memory->address() + byte_offset; }
  void open() const { memory->open(byte_offset, size_bytes, access); }
  void close() const { memory->close(access); }

  std::shared_ptr<Memory> memory;
  uint64_t byte_offset = 0, size_bytes = 0;
  Access access = Access::kRead;
};

}  // namespace bp::sim

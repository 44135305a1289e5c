// What processes share of an event that one of them exported: a sealed file, mapped by each, with a
// place for every record that has not completed or that somebody waits for.
//
//   head: the latest record     changes: a futex     places: { pending or done, waiters, status }
//
// Nobody locks anything, so a process that ends at any moment leaves the others a page that they
// can go on with. Each participant holds a lock of the system on a byte of its own, which ends with
// the process: who waits for a record finds out that nobody will complete it any more.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "backplane/base.h"
#include "backplane/shell/memory_file.hpp"

namespace bp {

// One record, as long as nobody reuses its place: who waits holds it.
struct SharedRecord {
  uint32_t place = 0, generation = 0;  // The generation of a record is never 0.
  bool operator==(const SharedRecord&) const = default;
};

enum class SharedWait { kDone, kTimeout, kStopped };

// Safe from any thread. Functions that take `call` throw StatusError, whose text begins with it.
class SharedEvent {
 public:
  // A new event, of which descriptors are called `kind`; and one behind such a descriptor.
  SharedEvent(const char* call, const std::string& kind);
  SharedEvent(const char* call, const std::string& kind, int descriptor);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;

  // A descriptor for somebody else.
  int duplicate(const char* call) const { return file_.duplicate(call); }

  // A record takes a place, and is pending until complete(). From publish() on it is the latest.
  SharedRecord claim(const char* call);
  void publish(SharedRecord record);
  void complete(SharedRecord record, bp_status status);

  // Lets a record that is pending keep its place until release(), as hold_latest() does.
  void hold(SharedRecord record);

  // False if nothing was recorded yet.
  bool latest(SharedRecord& out_record) const;

  // Lets the latest record keep its place until release(). False if nothing was recorded yet.
  bool hold_latest(SharedRecord& out_record);
  void release(SharedRecord record);

  // Whether a record that is held has completed, or never will: see wait().
  bool is_done(SharedRecord record) const;

  // Blocks until a record that is held completes, and gives its status; BP_ABORTED if the process
  // that recorded it has ended. Ends early when `is_stopped` is set and wake() called.
  SharedWait wait(SharedRecord record, uint64_t timeout_ns, const std::atomic<bool>& is_stopped,
                  bp_status& out_status) const;
  void wake();

 private:
  struct Place;
  struct Page;

  void take_part(const char* call);
  bool is_orphan(const Place& place) const;

  const MemoryFile file_;
  const Mapping mapping_;
  Page& page_;
  int part_descriptor_ = -1;  // Whose lock says that this participant lives.
  uint32_t participant_ = 0;
};

}  // namespace bp

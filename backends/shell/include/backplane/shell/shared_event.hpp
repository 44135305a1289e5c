// What processes share of an event that one of them exported: a sealed file, which each of them
// maps, with a place for every record that has not ended or that somebody waits for.
//
//   head: the latest record     changes: a futex     places: { word, status }
//   word: { generation, participant, pending, unpublished, lost }     holds: [participant][place]
//
// A process may be killed at any moment, and the others go on, because of these invariants:
//
//  1. A participant is a number below 1024. Its process has a lock of the system on the byte of
//     that number, and the lock ends with the process. Only the owner of the lock changes what
//     belongs to the participant: its row of holds, and the words that name it and are pending or
//     unpublished.
//  2. What an ended participant left behind is given up by a process that takes the lock after it:
//     a new participant before it begins, or a survivor that finds no free place. Both have the
//     turn meanwhile, which is the lock of one more byte: so one process at a time does it, nobody
//     sees half of it, and the next one repeats it if this process is killed.
//  3. One exchange of a word makes a record: pending, unpublished, of the next generation, and with
//     its participant. A record becomes lost if its participant ends while it is pending.
//  4. Who claims a place reads its word, then the head, and then the holds: the place is free if
//     the word is neither pending nor unpublished, the head names another place and no row holds
//     this one. Who holds the latest record counts it in a row first, and then reads the head: the
//     hold is good if the head still names the record. A published record that has ceased to be
//     the head is never the head again, so a good hold was counted before the claim read the holds.
//
// A child of fork() has the lock of its parent too: such a participant lives until both processes
// have ended, or the child has called exec().
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "backplane/base.h"
#include "backplane/shell/memory_file.hpp"

namespace bp {

// One record, as long as nobody reuses its place: who waits holds it.
struct SharedRecord {
  uint32_t place = 0, generation = 0;  // The generation of a record is never 0.
  bool operator==(const SharedRecord&) const = default;
};

// How a wait ended: kLost if the process that had to complete the record has ended before.
enum class SharedWait { kDone, kLost, kTimeout, kStopped };

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
  // One that is never published ends with abandon().
  SharedRecord claim(const char* call);
  void publish(SharedRecord record);
  void complete(SharedRecord record, bp_status status);
  void abandon(SharedRecord record);

  // False if nothing was recorded yet.
  bool latest(SharedRecord& out_record) const;

  // Lets the latest record keep its place until release(). False if nothing was recorded yet.
  bool hold_latest(SharedRecord& out_record);
  void release(SharedRecord record);

  // Whether a record that is held has completed, or never will.
  bool is_done(SharedRecord record) const;

  // Blocks until a record that is held completes, and gives its status, or until it is lost. Ends
  // early when `is_stopped` is set and wake() called.
  SharedWait wait(SharedRecord record, uint64_t timeout_ns, const std::atomic<bool>& is_stopped,
                  bp_status& out_status) const;
  void wake();

 private:
  struct Place;
  struct Page;

  void take_part(const char* call);
  bool take_number();
  void give_up(uint32_t participant);
  void give_up_ended();
  bool try_claim(SharedRecord& out_record);
  bool is_held(uint32_t place) const;
  bool has_ended(uint32_t participant) const;
  bool set_lock(short type, uint32_t byte, int how) const;

  const MemoryFile file_;
  const Mapping mapping_;
  Page& page_;
  int part_descriptor_ = -1;  // Its locks are those of this participant.
  uint32_t participant_ = 0;
  std::mutex giving_up_;  // The locks of the system do not keep threads of one participant apart.
};

}  // namespace bp

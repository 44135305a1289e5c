// The part of an exported event that processes share. It is a sealed file, which each process maps.
// The file has a place for every record that has not completed or that somebody waits for.
//
//   head: the latest record     changes: a futex     places: { word, status }
//   word: { generation, participant, pending, unpublished, lost }     holds: [participant][place]
//
// A process may be killed at any moment, and the others go on. These invariants make it possible:
//
//  1. A participant is a number below 1024. Its process has a lock of the system on the byte of
//     that number, and the lock ends with the process. Only the owner of the lock changes what
//     belongs to the participant: its row of holds, and the words that name it and are pending or
//     unpublished.
//  2. When a participant has ended, another process takes its lock and gives up what it left
//     behind. That process is a new participant before it begins, or a survivor that finds no free
//     place. It holds the turn meanwhile, which is the lock of one more byte. So one process at a
//     time gives up, no other process sees a half-done state, and the next one repeats the work if
//     this process is killed.
//  3. One exchange of a word makes a record: pending, unpublished, of the next generation, and with
//     its participant. A record becomes lost if its participant ends while it is pending.
//  4. A claim reads the word of a place, then the head, and then the holds. The place is free if
//     its word is neither pending nor unpublished, the head names another place, and no row holds
//     this place. A hold of the latest record is first counted in a row; then the head is read. The
//     hold is good if the head still names the record. A published record that is no longer the
//     head is never the head again, so a good hold was counted before the claim read the holds.
//
// A child of fork() shares the lock of its parent. Such a participant lives until both processes
// have ended, or the child has called exec().
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "backplane/base.h"
#include "backplane/shell/memory_file.hpp"

namespace bp {

// One record. It is valid as long as nobody reuses its place; a waiter holds the place.
struct SharedRecord {
  uint32_t place = 0, generation = 0;  // The generation of a record is never 0.
  bool operator==(const SharedRecord&) const = default;
};

// How a wait ended. kLost means that the process that had to complete the record has ended.
enum class SharedWait { kDone, kLost, kTimeout, kStopped };

// An event that processes share. It is safe from any thread. Functions that take `call` throw
// StatusError, whose text begins with `call`.
class SharedEvent {
 public:
  // The first constructor makes a new event, whose file is named `kind`. The second one opens the
  // event behind such a descriptor.
  SharedEvent(const char* call, const std::string& kind);
  SharedEvent(const char* call, const std::string& kind, int descriptor);
  ~SharedEvent();
  SharedEvent(const SharedEvent&) = delete;

  // Returns a duplicate of the descriptor, which the caller owns.
  int duplicate(const char* call) const { return file_.duplicate(call); }

  // A record takes a place with claim(), and is pending until complete(). From publish() on it is
  // the latest record. A record that is never published ends with abandon().
  SharedRecord claim(const char* call);
  void publish(SharedRecord record);
  void complete(SharedRecord record, bp_status status);
  void abandon(SharedRecord record);

  // Gives the latest record. Returns false if nothing was recorded yet.
  bool latest(SharedRecord& out_record) const;

  // Gives the latest record, which keeps its place until release(). Returns false if there is none.
  bool hold_latest(SharedRecord& out_record);
  void release(SharedRecord record);

  // Returns whether a record that is held has completed or is lost.
  bool is_done(SharedRecord record) const;

  // Blocks until a record that is held completes, and gives its status, or until the record is
  // lost. The wait ends early if `is_stopped` is set and wake() is called.
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
  int part_descriptor_ = -1;  // It has the locks of this participant.
  uint32_t participant_ = 0;
  std::mutex giving_up_;  // The system's locks do not exclude other threads of the participant.
};

}  // namespace bp

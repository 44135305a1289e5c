// Finds work of several streams that may run at the same time, by vector clocks, and reports two
// pieces of it that touch the same bytes if one of them writes.
//
// Each stream counts its submissions; the count is its epoch. A clock has an epoch for each stream,
// and the owner of the clock runs after that epoch. Streams, events and the host have clocks:
//
//   submit(s)         clock(s) takes over clock(host), then clock(s)[s] is one more
//   record(e, s)      clock(e) = clock(s)
//   wait(s, e)        clock(s) takes over clock(e)
//   host waits for s  clock(host) takes over clock(s); likewise for an event
//   signal(m, v, s)   clock(m, v) = clock(s)
//   wait(s, m, v)     clock(s) takes over clock(m, w) for the first signal w >= v, and for those
//                     below it, which came earlier. Before there is such a signal, the work of the
//                     stream is ordered by something that is not seen here
//
// Two accesses are ordered if the clock of the later one's stream has reached the epoch of the
// earlier one. All threads of the host count as one: what one of them has waited for is known to
// all. So nothing is reported that could not happen, but hazards between threads are not seen.
// (Lamport, 1978; Mattern, 1989.)
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backplane/semaphore.h"
#include "registry/layers/footprint.hpp"

namespace bp::layers {

struct Access {
  Footprint where;
  bool writes = false;

  auto operator<=>(const Access&) const = default;
};

// The text of a call, and when it was made.
struct Work {
  std::string what;  // "kernel.launch add.rows".
  uint64_t number = 0;
};

// Two accesses that are not ordered.
struct Hazard {
  Work earlier;
  bool earlier_writes, later_writes;
  bp_stream* earlier_stream;
  Footprint where;  // The bytes of the later one.
};

// Not thread-safe.
class Hazards {
 public:
  void add_stream(bp_stream* stream, bp_device* device);
  // Notes that the stream has ended. Its work goes on.
  void remove_stream(bp_stream* stream);

  // Notes that work of the stream is ordered by something that is not seen here: a native queue, a
  // capture, or a host signal to come. Such work makes no hazards until it ends.
  void begin_unseen(bp_stream* stream);
  void end_unseen(bp_stream* stream);

  // Records what a piece of work touches, and returns its hazards. `out_epoch` is for retract(),
  // which takes back work that was not submitted after all.
  std::vector<Hazard> submit(bp_stream* stream, const std::vector<Access>& accesses,
                             const Work& work, uint64_t* out_epoch);
  void retract(bp_stream* stream, uint64_t epoch, const std::vector<Access>& accesses);

  // Returns the work that may still touch the bytes. If `writes` is false, work that only reads is
  // left out.
  std::vector<Hazard> host_touches(const Footprint& where, bool writes) const;

  void record_event(bp_event* event, bp_stream* stream);
  void wait_event(bp_stream* stream, bp_event* event);
  // Orders what waits for the event after all that the host has seen.
  void signal_event(bp_event* event);
  // Lets `copy` stand for what `event` captured by now.
  void copy_event(bp_event* copy, bp_event* event);
  void remove_event(bp_event* event) { events_.erase(event); }
  void remove_buffer(bp_buffer* buffer) { accesses_.erase(buffer); }

  void host_waits_for_stream(bp_stream* stream);
  void host_waits_for_event(bp_event* event);
  void host_waits_for_device(bp_device* device);

  void add_semaphore(bp_semaphore* semaphore, uint64_t value);
  // Streams that still wait for the semaphore stay unseen.
  void remove_semaphore(bp_semaphore* semaphore) { semaphores_.erase(semaphore); }
  // A NULL stream stands for the host.
  void signal_semaphore(bp_semaphore* semaphore, bp_stream* stream, uint64_t value);
  void wait_semaphore(bp_stream* stream, bp_semaphore* semaphore, uint64_t value);
  void host_waits_for_semaphore(bp_semaphore* semaphore, uint64_t value);

 private:
  using Clock = std::map<uint32_t, uint64_t>;  // By stream number; an absent number is 0.

  struct Stream {
    uint32_t number = 0;
    bp_device* device = nullptr;
    uint32_t unseen_count = 0;
    Clock clock;
  };

  struct Waiter {
    bp_stream* stream;
    uint64_t value;
  };
  struct Semaphore {
    uint64_t reached = 0;               // A value that the host knows to be reached.
    std::map<uint64_t, Clock> signals;  // By value; those that the host has not waited for.
    std::vector<Waiter> waiters;        // For values that nobody has signalled yet.
  };

  struct Record {
    Access access;
    uint32_t stream_number;
    bp_stream* stream;
    uint64_t epoch;
    Work work;
  };

  static void take_over(Clock& mine, const Clock& theirs);
  static uint64_t at(const Clock& clock, uint32_t number);
  static bool take_over(Clock& mine, const Semaphore& semaphore, uint64_t value);
  void forget(uint32_t number);
  // Forgets accesses that can never be unordered again, or that `access` covers.
  void prune(std::vector<Record>& records, const Stream& stream, const Access& access) const;

  uint32_t next_number_ = 0;
  std::map<bp_stream*, Stream> streams_;
  // Streams that were destroyed, until their device was waited for.
  std::vector<Stream> ended_;
  std::map<bp_event*, Clock> events_;
  std::map<bp_semaphore*, Semaphore> semaphores_;
  Clock host_;
  std::map<bp_buffer*, std::vector<Record>> accesses_;
};

}  // namespace bp::layers

// Which work of several streams may run at the same time, by vector clocks, and where two pieces of
// it touch the same bytes of which one is written.
//
// A stream counts its submissions: its epoch. A clock has, for each stream, the epoch behind which
// its owner runs. Each stream has one, and so have events and the host:
//
//   submit(s)         clock(s) takes over clock(host), then clock(s)[s] is one more
//   record(e, s)      clock(e) = clock(s)
//   wait(s, e)        clock(s) takes over clock(e)
//   host waits for s  clock(host) takes over clock(s); likewise for an event
//
// Two accesses are ordered if the clock of the later one's stream has reached the epoch of the
// earlier one. All threads of the host count as one, so that what one of them has waited for is
// known to all: nothing is reported that could not happen, and what threads do to each other is not
// looked at. (Lamport, 1978; Mattern, 1989.)
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "backplane/stream.h"
#include "registry/layers/footprint.hpp"

namespace bp::layers {

struct Access {
  Footprint where;
  bool writes = false;

  auto operator<=>(const Access&) const = default;
};

// The words of a call, and when it was made.
struct Work {
  std::string what;  // "kernel.launch add.rows".
  uint64_t number = 0;
};

// Two accesses that are not ordered.
struct Hazard {
  Work earlier;
  bool earlier_writes, later_writes;
  bp_stream* earlier_stream;
  Footprint where;  // Of the later one.
};

// Not thread-safe.
class Hazards {
 public:
  void add_stream(bp_stream* stream, bp_device* device);
  // Its work goes on.
  void remove_stream(bp_stream* stream);

  // Work of the stream is ordered by something that is not seen here: a native queue, a capture, a
  // host signal to come. It makes no hazards until it ends.
  void begin_unseen(bp_stream* stream);
  void end_unseen(bp_stream* stream);

  // Records what a piece of work touches, and returns the hazards of it. `out_epoch` is for
  // retract(), where the work was not submitted after all.
  std::vector<Hazard> submit(bp_stream* stream, const std::vector<Access>& accesses,
                             const Work& work, uint64_t* out_epoch);
  void retract(bp_stream* stream, uint64_t epoch, const std::vector<Access>& accesses);

  // The work that may still touch the bytes, other than by reading if `writes` is false.
  std::vector<Hazard> host_touches(const Footprint& where, bool writes) const;

  void record_event(bp_event* event, bp_stream* stream);
  void wait_event(bp_stream* stream, bp_event* event);
  // What waits for the event is behind all that the host has seen.
  void signal_event(bp_event* event);
  void remove_event(bp_event* event) { events_.erase(event); }
  void remove_buffer(bp_buffer* buffer) { accesses_.erase(buffer); }

  void host_waits_for_stream(bp_stream* stream);
  void host_waits_for_event(bp_event* event);
  void host_waits_for_device(bp_device* device);

 private:
  using Clock = std::map<uint32_t, uint64_t>;  // By stream number; absent is 0.

  struct Stream {
    uint32_t number = 0;
    bp_device* device = nullptr;
    uint32_t unseen_count = 0;
    Clock clock;
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
  void forget(uint32_t number);
  // Forgets what can never be unordered again, or is covered by `access`.
  void prune(std::vector<Record>& records, const Stream& stream, const Access& access) const;

  uint32_t next_number_ = 0;
  std::map<bp_stream*, Stream> streams_;
  // Streams that were destroyed, until their device was waited for.
  std::vector<Stream> ended_;
  std::map<bp_event*, Clock> events_;
  Clock host_;
  std::map<bp_buffer*, std::vector<Record>> accesses_;
};

}  // namespace bp::layers

// The launcher that decides for all: who runs which ranks, when they start again, and how the job
// ends. It has no thread: step() looks once at what the others have put in the store.
//
//   key                     who puts it   value
//   config                  the leader    the options that all launchers must share
//   launchers               all (add)     how many have come; a launcher's id is the sum it got
//   launcher/ID             the launcher  ranks, node rank or -1, address
//   beat/ID                 the launcher  a number that grows while it lives
//   left/ID                 the launcher  why it has left
//   order                   the leader    Order::encoded()
//   round/ROUND             the leader    restart count; of each launcher id, first rank, ranks
//   master/ROUND            the first     address and port of rank 0
//   result/ROUND/ID         the launcher  "0", or the exit code, 1 if by a signal, and a text
//   stopped/ROUND/ID        the launcher  nothing: none of its ranks runs any more
//   end/ID                  the launcher  nothing: it knows that the job has ended
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/distributed/rendezvous.hpp"

namespace bp::distributed {

class RendezvousLeader {
 public:
  RendezvousLeader(Store& store, const RendezvousOptions& options, Deadline now);

  // Throws Error if the store is gone.
  void step(Deadline now);

  // Ends the job.
  void finish(int code, const std::string& text);

  // Returns whether the job has ended, and all launchers know it.
  bool is_over();

 private:
  enum class Phase { kGathering, kRunning, kStopping, kEnded };
  struct Launcher {
    uint32_t ranks = 0;
    int64_t node_rank = -1;
    std::string address;
    std::string beat;
    Deadline last_beat;
    bool is_here = true;
  };
  struct Failure {
    int code = 1;
    bool by_signal = false;
    std::string text;
  };

  void read_launchers(Deadline now);
  void look_at(uint32_t id, Launcher& launcher, Deadline now);
  void gather(Deadline now);
  void watch();
  void read_result(uint32_t id);
  void stop(const std::string& why);
  void wait_for_stops(Deadline now);
  void start();
  void gather_from(Deadline now);
  void give(const Order& order);
  std::vector<uint32_t> here() const;
  std::string name_of(uint32_t id) const;
  bool runs(uint32_t id) const;

  Store& store_;
  const RendezvousOptions options_;
  std::map<uint32_t, Launcher> launchers_;  // By id.
  Phase phase_ = Phase::kGathering;
  uint32_t round_ = 0;
  uint32_t restarts_ = 0;                // After failures.
  std::vector<uint32_t> running_;        // The launchers of the round.
  std::map<uint32_t, bool> has_result_;  // Launchers of the round whose ranks have ended.
  std::optional<Failure> failure_;  // The first of the round, but one by a signal before others.
  std::string lost_;                // Launchers that were lost while the round ended, for people.
  bool counts_ = false;             // Whether the next start is one of max_restarts.
  Deadline gathering_since_;
  std::optional<Deadline> enough_since_;
};

}  // namespace bp::distributed

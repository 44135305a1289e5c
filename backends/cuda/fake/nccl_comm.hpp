// The communicators of the fake NCCL, and the meetings of their ranks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

using Bytes = std::vector<std::byte>;

// What one rank brings to a collective.
struct Offer {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  size_t send_bytes = 0;
  double scale = 1;
};
// The ranks that have come to one collective. The last one computes the results of all of them.
struct Meeting {
  std::map<int, Offer> offers;
  bool is_done = false;
};

// The ranks of one communicator. The mutex of Shared guards all worlds, because speed does not
// matter in tests.
struct World {
  int size = 0;
  int joined = 0;
  std::map<uint64_t, Meeting> meetings;
  std::map<std::string, std::set<int>> connections;       // The ranks that have come to each.
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // The messages by sender and receiver.
};

// A split that some ranks have come to. As NCCL does, the rank that comes last stores the new
// communicators into the places that the others have named.
struct Split {
  std::map<int, std::pair<int, int>> wishes;  // The color and the key of each rank.
  std::map<int, ncclComm**> places;
  bool is_done = false;
};

// What calls need before their work can start. The first use makes it, for which `ranks` ranks must
// come.
struct Connection {
  std::string name;
  size_t ranks = 0;
};

// A group of calls that has ended, and waits for connections.
struct Job {
  std::vector<std::pair<ncclComm*, Connection>> needs;
  std::function<void()> launch;
  bool is_done = false;
};

}  // namespace bp::cuda::fake

// The type of NCCL's handles. NCCL's header only declares it, and its library defines it.
struct ncclComm {
  std::shared_ptr<bp::cuda::fake::World> world;
  int rank = 0;
  uint64_t next = 0, next_split = 0;
  std::shared_ptr<bp::cuda::fake::Split> splitting;  // NULL once all ranks have come.
  std::shared_ptr<bp::cuda::fake::Job> job;          // Its latest calls.
  bool is_aborted = false;
  std::map<int, double> scales;  // The factors of the reductions that were made for it.
};

namespace bp::cuda::fake {

// The state that all ranks of the process share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::weak_ptr<World>> worlds;  // By the id of their communicator.
  std::map<std::pair<std::shared_ptr<World>, uint64_t>, std::shared_ptr<Split>> splits;
  std::vector<std::shared_ptr<Job>> connecting;
  std::vector<std::unique_ptr<ncclComm>> graveyard;  // Ended, but work may still read them.
  int next_id = 0, live = 0;
  std::string failing;
  ncclResult_t failure = ncclSuccess, async_failure = ncclSuccess;
  std::vector<int> max_ctas;  // maxCTAs of each communicator that was made.
};

Shared& shared();

// Returns whether calls of `name` must fail, and gives the result of such calls.
bool fails(const char* name, ncclResult_t& result);

// Puts the functions that make, split, query and end communicators into the table.
void add_communicators(Nccl& table);

}  // namespace bp::cuda::fake

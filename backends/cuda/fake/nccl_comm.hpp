// The communicators of the NCCL for tests, and how their ranks meet.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/library_tables.hpp"

namespace bp::cuda::fake {

using Bytes = std::vector<std::byte>;

// What one rank brings to a collective, and how the last one to come answers all of them.
struct Offer {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
  size_t send_bytes = 0;
  double scale = 1;
};
struct Meeting {
  std::map<int, Offer> offers;
  bool is_done = false;
};

// The ranks of one communicator. One mutex for all of them: tests are not about speed.
struct World {
  int size = 0;
  int joined = 0;
  std::map<uint64_t, Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<Bytes>> mail;  // By sender and receiver.
};

// A split that some ranks have come to.
struct Split {
  std::map<int, std::pair<int, int>> wishes;  // Color and key, by rank.
  std::map<int, ncclComm*> children;
};

}  // namespace bp::cuda::fake

// NCCL's own handle; completed here as in its library.
struct ncclComm {
  std::shared_ptr<bp::cuda::fake::World> world;
  int rank = 0;
  uint64_t next = 0, next_split = 0;
  std::shared_ptr<bp::cuda::fake::Split> splitting;  // Until all ranks have come.
  bool is_aborted = false;
  std::map<int, double> scales;  // Of its own reductions.
};

namespace bp::cuda::fake {

// What all ranks of the process share.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::shared_ptr<World>> worlds;  // By id.
  std::map<std::pair<World*, uint64_t>, std::shared_ptr<Split>> splits;
  std::vector<std::unique_ptr<ncclComm>> graveyard;  // Work may still look at them.
  int next_id = 0, live = 0;
  std::string failing;
  ncclResult_t failure = ncclSuccess, async_failure = ncclSuccess;
};

Shared& shared();

// Whether calls of `name` are to fail, and with what.
bool fails(const char* name, ncclResult_t& result);

// Puts the functions that make, split, ask and end communicators into the table.
void add_communicators(Nccl& table);

}  // namespace bp::cuda::fake

#include "backends/cuda/fake/nccl_comm.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "backends/cuda/fake/nccl.hpp"

namespace bp::cuda::fake {
namespace {

// Adds an item, and lets go of the first one where there are many.
template <typename Item>
void keep_last(std::vector<Item>& items, Item item) {
  constexpr size_t kMost = 64;
  if (items.size() == kMost) items.erase(items.begin());
  items.push_back(std::move(item));
}

ncclResult_t get_unique_id(ncclUniqueId* id) {
  ncclResult_t result;
  if (fails("ncclGetUniqueId", result)) return result;
  const std::lock_guard lock(shared().mutex);
  *id = {};
  std::memcpy(id->internal, &++shared().next_id, sizeof(int));
  return ncclSuccess;
}

bool is_connecting(const ncclComm& comm) { return comm.job != nullptr && !comm.job->is_done; }

ncclComm* make_comm(const std::shared_ptr<World>& world, int rank) {
  ++shared().live;
  auto* const comm = new ncclComm;
  comm->world = world;
  comm->rank = rank;
  return comm;
}

ncclResult_t init_rank(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                       ncclConfig_t* config) {
  ncclResult_t result;
  if (fails("ncclCommInitRankConfig", result)) return result;
  const std::lock_guard lock(shared().mutex);
  std::erase_if(shared().worlds, [](const auto& entry) { return entry.second.expired(); });
  auto& known = shared().worlds[std::string(id.internal, sizeof(int))];
  std::shared_ptr<World> world = known.lock();
  if (world == nullptr) known = world = std::make_shared<World>(World{.size = size});
  ++world->joined;
  keep_last(shared().max_ctas, config->maxCTAs);
  *comm = make_comm(world, rank);
  return ncclInProgress;
}

// Makes the worlds of a split to which all ranks have come.
void finish_split(Split& split) {
  split.is_done = true;
  // The communicators of each color, each with its (key, rank).
  std::map<int, std::vector<std::pair<std::pair<int, int>, ncclComm*>>> parts;
  for (const auto& [rank, wish] : split.wishes) {
    if (wish.first == NCCL_SPLIT_NOCOLOR) continue;
    ncclComm* const child = make_comm(nullptr, 0);
    *split.places[rank] = child;
    parts[wish.first].push_back({{wish.second, rank}, child});
  }
  for (auto& [color, members] : parts) {
    std::sort(members.begin(), members.end());
    const int size = static_cast<int>(members.size());
    const auto world = std::make_shared<World>(World{.size = size, .joined = size});
    for (size_t i = 0; i < members.size(); ++i) {
      members[i].second->world = world;
      members[i].second->rank = static_cast<int>(i);
    }
  }
}

ncclResult_t split(ncclComm_t comm, int color, int key, ncclComm_t* child, ncclConfig_t* config) {
  ncclResult_t result;
  if (fails("ncclCommSplit", result)) return result;
  Shared& s = shared();
  const std::lock_guard lock(s.mutex);
  auto& meeting = s.splits[{comm->world, comm->next_split++}];
  if (meeting == nullptr) meeting = std::make_shared<Split>();
  meeting->wishes[comm->rank] = {color, key};
  *child = nullptr;
  meeting->places[comm->rank] = child;
  comm->splitting = meeting;
  keep_last(s.max_ctas, config->maxCTAs);
  if (std::ssize(meeting->wishes) == comm->world->size) finish_split(*meeting);
  return ncclInProgress;
}

ncclResult_t get_async_error(ncclComm_t comm, ncclResult_t* state) {
  const std::lock_guard lock(shared().mutex);
  const bool has_all = comm->world->joined == comm->world->size;
  *state = has_all ? shared().async_failure : ncclInProgress;
  if (*state == ncclSuccess && is_connecting(*comm)) *state = ncclInProgress;
  if (comm->splitting == nullptr) return ncclSuccess;
  if (comm->splitting->is_done) {
    comm->splitting = nullptr;
  } else {
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

// Ends a communicator. It stops to connect, and nothing is stored for it any more. As NCCL does, it
// waits for a launch that goes on.
ncclResult_t end_comm(ncclComm_t comm) {
  std::unique_lock lock(shared().mutex);
  comm->is_aborted = true;
  if (is_connecting(*comm)) {
    if (std::erase(shared().connecting, comm->job) != 0) comm->job->is_done = true;
    shared().changed.wait(lock, [&] { return comm->job->is_done; });
  }
  if (comm->splitting != nullptr) {
    comm->splitting->wishes.erase(comm->rank);
    comm->splitting->places.erase(comm->rank);
  }
  --shared().live;
  keep_last(shared().graveyard, std::unique_ptr<ncclComm>(comm));
  shared().changed.notify_all();
  return ncclSuccess;
}

}  // namespace

Shared& shared() {
  static Shared only;
  return only;
}

bool fails(const char* name, ncclResult_t& result) {
  const std::lock_guard lock(shared().mutex);
  result = shared().failure;
  return shared().failing == name;
}

void add_communicators(Nccl& t) {
  t.get_unique_id = get_unique_id;
  t.init_rank = init_rank;
  t.split = split;
  t.finalize = [](ncclComm_t) { return ncclSuccess; };
  t.destroy = end_comm;
  t.abort = end_comm;
  t.get_async_error = get_async_error;
  t.count = [](const ncclComm_t comm, int* count) {
    *count = comm->world->size;
    return ncclSuccess;
  };
  t.user_rank = [](const ncclComm_t comm, int* rank) {
    *rank = comm->rank;
    return ncclSuccess;
  };
}

void fail_nccl_call(const std::string& name, ncclResult_t result) {
  const std::lock_guard lock(shared().mutex);
  shared().failing = name;
  shared().failure = result;
}

void fail_nccl_async(ncclResult_t result) {
  const std::lock_guard lock(shared().mutex);
  shared().async_failure = result;
}

std::vector<int> take_max_ctas() {
  const std::lock_guard lock(shared().mutex);
  return std::exchange(shared().max_ctas, {});
}

int live_communicators() {
  const std::lock_guard lock(shared().mutex);
  return shared().live;
}

}  // namespace bp::cuda::fake

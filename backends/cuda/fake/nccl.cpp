#include "backends/cuda/fake/nccl.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

#include "backends/cuda/fake/nccl_comm.hpp"
#include "backends/cuda/fake/state.hpp"
#include "backplane/shell/combine.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::cuda::fake {
namespace {

using Finish = std::function<void(std::map<int, Offer>& offers)>;

// One call of a group of calls. The group gathers its steps on the calling thread.
struct Step {
  ncclComm* comm;
  cudaStream_t stream;
  Connection connection;
  std::function<void()> run;
};
thread_local int group_depth = 0;
thread_local std::vector<Step> steps;
thread_local std::shared_ptr<Job> last_job;  // The last group of the thread that had calls.

void submit(cudaStream_t stream, std::function<void()> work) {
  State& s = state();
  FakeStream* const found = s.find(stream);
  if (found == nullptr) return s.break_rule("NCCL got a stream that does not exist");
  Context* const before = std::exchange(current(), found->context);
  s.submit(stream, reinterpret_cast<const void*>(&submit), std::move(work));
  current() = before;
}

// Launches the groups whose connections have been made. They count as connecting until their work
// is on its streams.
void launch_connected() {
  Shared& s = shared();
  std::vector<std::shared_ptr<Job>> ready;
  {
    const std::lock_guard lock(s.mutex);
    const auto is_ready = [](const std::shared_ptr<Job>& job) {
      return std::ranges::all_of(job->needs, [](const auto& need) {
        const auto& [comm, connection] = need;
        return comm->world->connections[connection.name].size() >= connection.ranks;
      });
    };
    for (const std::shared_ptr<Job>& job : s.connecting) {
      if (is_ready(job)) ready.push_back(job);
    }
    for (const std::shared_ptr<Job>& job : ready) std::erase(s.connecting, job);
  }
  for (const std::shared_ptr<Job>& job : ready) {
    job->launch();
    const std::lock_guard lock(s.mutex);
    job->is_done = true;
    s.changed.notify_all();
  }
}

// NCCL before 2.27 keeps a group that connects in the thread that ended it, and the thread must not
// begin another group meanwhile.
ncclResult_t group_start() {
  if (group_depth == 0 && last_job != nullptr) {
    const std::lock_guard lock(shared().mutex);
    if (!last_job->is_done) return ncclInvalidUsage;
    last_job = nullptr;
  }
  ++group_depth;
  return ncclSuccess;
}

// Submits the gathered calls once their connections have been made. All calls of one communicator
// are one piece of work, so that no send waits behind a receive.
ncclResult_t group_end() {
  if (--group_depth > 0) return ncclInProgress;
  std::vector<Step> gathered = std::exchange(steps, {});
  ncclResult_t result;
  if (fails("ncclGroupEnd", result)) return result;
  if (gathered.empty()) return ncclInProgress;
  using Part = std::pair<ncclComm*, cudaStream_t>;
  std::map<Part, std::vector<std::function<void()>>> parts;
  std::vector<Part> order;
  const auto job = std::make_shared<Job>();
  {
    const std::lock_guard lock(shared().mutex);
    for (Step& step : gathered) {
      auto& part = parts[{step.comm, step.stream}];
      if (part.empty()) order.emplace_back(step.comm, step.stream);
      part.push_back(std::move(step.run));
      step.comm->world->connections[step.connection.name].insert(step.comm->rank);
      job->needs.emplace_back(step.comm, std::move(step.connection));
      step.comm->job = job;
    }
    job->launch = [parts = std::move(parts), order = std::move(order)] {
      for (const Part& at : order) {
        submit(at.second, [runs = parts.at(at)] {
          for (const auto& run : runs) run();
        });
      }
    };
    shared().connecting.push_back(job);
  }
  last_job = job;
  launch_connected();
  return ncclInProgress;
}

// Adds a call to its group. A communicator takes no call while it connects for earlier ones.
ncclResult_t add(const char* name, Step step) {
  ncclResult_t result;
  if (fails(name, result)) return result;
  {
    const std::lock_guard lock(shared().mutex);
    if (step.comm->job != nullptr && !step.comm->job->is_done) return ncclInvalidArgument;
  }
  if (group_depth == 0) return ncclInvalidUsage;  // The backend makes all calls in groups.
  steps.push_back(std::move(step));
  return ncclSuccess;
}

// Brings `offer` to the next meeting of `comm`. The rank that comes last calls `finish`. As NCCL
// has other algorithms for few bytes than for many, it has other connections for them.
ncclResult_t meet(const char* name, ncclComm* comm, cudaStream_t stream, const Offer& offer,
                  Finish finish) {
  constexpr size_t kFewBytes = 8;
  const Connection connection{
      std::string(name) + (offer.send_bytes <= kFewBytes ? " of few bytes" : ""),
      static_cast<size_t>(comm->world->size)};
  const uint64_t number = comm->next;
  const ncclResult_t added =
      add(name, {comm, stream, connection, [comm, number, offer, finish = std::move(finish)] {
                   Shared& s = shared();
                   std::unique_lock lock(s.mutex);
                   const std::shared_ptr<World> world = comm->world;
                   Meeting& meeting = world->meetings[number];
                   meeting.offers[comm->rank] = offer;
                   if (std::ssize(meeting.offers) == world->size) {
                     finish(meeting.offers);
                     meeting.is_done = true;
                     s.changed.notify_all();
                   }
                   s.changed.wait(lock, [&] { return meeting.is_done || comm->is_aborted; });
                 }});
  if (added == ncclSuccess) ++comm->next;
  return added;
}

// Returns the connection from one rank to another.
Connection path(int from, int to) {
  return {std::to_string(from) + " to " + std::to_string(to), from == to ? size_t{1} : size_t{2}};
}

// ---- Reductions ---------------------------------------------------------------------------------

bp_dtype dtype_of(ncclDataType_t type) {
  constexpr bp_dtype kDtypes[] = {BP_I8,  BP_U8,  BP_I32, BP_U32, BP_I64,
                                  BP_U64, BP_F16, BP_F32, BP_F64, BP_BF16};
  return kDtypes[type];
}

bp_reduction reduction_of(ncclRedOp_t op) {
  switch (op) {
    case ncclSum:
      return BP_REDUCTION_SUM;
    case ncclProd:
      return BP_REDUCTION_PRODUCT;
    case ncclMax:
      return BP_REDUCTION_MAX;
    case ncclMin:
      return BP_REDUCTION_MIN;
    case ncclAvg:
      return BP_REDUCTION_AVERAGE;
    default:
      return BP_REDUCTION_SCALED_SUM;
  }
}

// Returns the bytes of the reduction of all offers.
Bytes reduced(const std::map<int, Offer>& offers, ncclDataType_t type, ncclRedOp_t op) {
  std::vector<kernels::Contribution> from;
  from.reserve(offers.size());
  for (const auto& [rank, offer] : offers) from.push_back({offer.send, offer.scale});
  const size_t size_bytes = offers.begin()->second.send_bytes;
  Bytes result(size_bytes);
  const int64_t item = dtype_size_bytes(dtype_of(type));
  kernels::combine(reduction_of(op), dtype_of(type), from, result.data(),
                   static_cast<int64_t>(size_bytes) / item);
  return result;
}

Offer reduce_offer(const ncclComm* comm, const void* send, void* receive, size_t count,
                   ncclDataType_t type, ncclRedOp_t op) {
  const auto scale = comm->scales.find(op);
  return {static_cast<const std::byte*>(send), static_cast<std::byte*>(receive),
          count * static_cast<size_t>(dtype_size_bytes(dtype_of(type))),
          scale == comm->scales.end() ? 1 : scale->second};
}

// The signatures are those of NCCL.
// NOLINTBEGIN(readability-function-size)
ncclResult_t all_reduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return meet("ncclAllReduce", comm, stream, reduce_offer(comm, send, receive, count, type, op),
              [=](std::map<int, Offer>& offers) {
                const Bytes result = reduced(offers, type, op);
                for (const auto& [rank, offer] : offers) {
                  std::memcpy(offer.receive, result.data(), result.size());
                }
              });
}

ncclResult_t reduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                    ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
  return meet("ncclReduce", comm, stream, reduce_offer(comm, send, receive, count, type, op),
              [=](std::map<int, Offer>& offers) {
                const Bytes result = reduced(offers, type, op);
                std::memcpy(offers.at(root).receive, result.data(), result.size());
              });
}

ncclResult_t reduce_scatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  const auto ranks = static_cast<size_t>(comm->world->size);
  return meet(
      "ncclReduceScatter", comm, stream, reduce_offer(comm, send, receive, count * ranks, type, op),
      [=](std::map<int, Offer>& offers) {
        const Bytes result = reduced(offers, type, op);
        const size_t part = result.size() / ranks;
        for (const auto& [rank, offer] : offers) {
          std::memcpy(offer.receive, result.data() + static_cast<size_t>(rank) * part, part);
        }
      });
}

// ---- Moving bytes -------------------------------------------------------------------------------

ncclResult_t broadcast(const void* send, void* receive, size_t count, ncclDataType_t, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  return meet("ncclBroadcast", comm, stream,
              {static_cast<const std::byte*>(send), static_cast<std::byte*>(receive), count},
              [=](std::map<int, Offer>& offers) {
                const std::byte* const from = offers.at(root).send;
                for (const auto& [rank, offer] : offers) std::memmove(offer.receive, from, count);
              });
}

ncclResult_t all_gather(const void* send, void* receive, size_t count, ncclDataType_t,
                        ncclComm_t comm, cudaStream_t stream) {
  return meet("ncclAllGather", comm, stream,
              {static_cast<const std::byte*>(send), static_cast<std::byte*>(receive), count},
              [=](std::map<int, Offer>& offers) {
                Bytes all;
                for (const auto& [rank, offer] : offers) {
                  all.insert(all.end(), offer.send, offer.send + count);
                }
                for (const auto& [rank, offer] : offers) {
                  std::memcpy(offer.receive, all.data(), all.size());
                }
              });
}
// NOLINTEND(readability-function-size)

ncclResult_t send(const void* from, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  const auto* const bytes = static_cast<const std::byte*>(from);
  return add("ncclSend",
             {comm, stream, path(comm->rank, peer), [=] {
                const std::lock_guard lock(shared().mutex);
                comm->world->mail[{comm->rank, peer}].emplace_back(bytes, bytes + count);
                shared().changed.notify_all();
              }});
}

ncclResult_t receive(void* to, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  return add("ncclRecv",
             {comm, stream, path(peer, comm->rank), [=] {
                std::unique_lock lock(shared().mutex);
                const std::shared_ptr<World> world = comm->world;
                std::deque<Bytes>& box = world->mail[{peer, comm->rank}];
                shared().changed.wait(lock, [&] { return !box.empty() || comm->is_aborted; });
                if (box.empty()) return;
                std::memcpy(to, box.front().data(), std::min(count, box.front().size()));
                box.pop_front();
              }});
}

}  // namespace

Nccl nccl() {
  Nccl t{};
  add_communicators(t);
  t.error_string = [](ncclResult_t) -> const char* { return "an error of NCCL for tests"; };
  t.last_error = [](ncclComm_t) -> const char* { return ""; };
  t.group_start = group_start;
  t.group_end = group_end;
  t.all_reduce = all_reduce;
  t.reduce = reduce;
  t.broadcast = broadcast;
  t.all_gather = all_gather;
  t.reduce_scatter = reduce_scatter;
  t.send = send;
  t.receive = receive;
  t.create_scaled_sum = [](ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                           ncclScalarResidence_t, ncclComm_t comm) {
    double scale = 0;
    switch (type) {
      case ncclFloat16:
        scale = __half2float(*static_cast<__half*>(scalar));
        break;
      case ncclBfloat16:
        scale = __bfloat162float(*static_cast<__nv_bfloat16*>(scalar));
        break;
      case ncclFloat32:
        scale = *static_cast<float*>(scalar);
        break;
      default:
        scale = *static_cast<double*>(scalar);
    }
    const std::lock_guard lock(shared().mutex);
    *op = static_cast<ncclRedOp_t>(ncclNumOps + comm->scales.size());
    comm->scales[*op] = scale;
    return ncclSuccess;
  };
  t.destroy_reduction = [](ncclRedOp_t, ncclComm_t) { return ncclSuccess; };
  return t;
}

}  // namespace bp::cuda::fake

// The functions of api.hpp on MPI 3.1. MPI is one of a process, so this module has one too, and is
// not unloaded: MPI cannot start a second time, and its threads run on until it ends.
//
// Reductions are operations of our own over kernels::combine(), so that all dtypes and NaNs mean
// what they mean in every other table. MPI gives an operation no data of ours. So each dtype is a
// datatype of its own, and each reduction a function.
#define OMPI_SKIP_MPICXX 1  // The C++ binding of MPI 2 is not used.
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "backends/cpu/mpi/api.hpp"
#include "backplane/shell/combine.hpp"
#include "backplane/shell/deadline.hpp"
#include "backplane/shell/shape.hpp"

namespace bp::mpi {

struct Communicator {
  MPI_Comm comm;
};

struct Request {
  MPI_Request request;
};

namespace {

constexpr uint64_t kExitNs = 10'000'000'000;

struct Abandoned {
  Request* request;
  void* memory;
};

// ---- Reductions ---------------------------------------------------------------------------------

// The datatypes, and the dtypes that they stand for. They are never destroyed, because MPI may
// still reduce when the process exits.
struct Types {
  std::mutex mutex;
  std::map<bp_dtype, MPI_Datatype> of_dtype;
};

Types& types() {
  static Types& all = *new Types;
  return all;
}

bp_dtype dtype_of(MPI_Datatype datatype) {
  Types& all = types();
  const std::lock_guard lock(all.mutex);
  const auto place = std::find_if(all.of_dtype.begin(), all.of_dtype.end(),
                                  [&](const auto& row) { return row.second == datatype; });
  return place == all.of_dtype.end() ? bp_dtype{0} : place->first;
}

template <bp_reduction kReduction>
void combine_two(void* first, void* result, int* count, MPI_Datatype* datatype) {
  const kernels::Contribution both[] = {{static_cast<const std::byte*>(first), 1.0},
                                        {static_cast<const std::byte*>(result), 1.0}};
  kernels::combine(kReduction, dtype_of(*datatype), both, static_cast<std::byte*>(result), *count);
}

int datatype_of(bp_dtype dtype, MPI_Datatype& out_datatype) {
  Types& all = types();
  const std::lock_guard lock(all.mutex);
  const auto [place, is_new] = all.of_dtype.try_emplace(dtype, MPI_DATATYPE_NULL);
  if (is_new) {
    const int error =
        MPI_Type_contiguous(static_cast<int>(dtype_size_bytes(dtype)), MPI_BYTE, &place->second);
    if (error != MPI_SUCCESS) return error;
    if (const int committed = MPI_Type_commit(&place->second)) return committed;
  }
  out_datatype = place->second;
  return MPI_SUCCESS;
}

template <bp_reduction kReduction>
int make_op(MPI_Op& out_op) {
  static MPI_Op op = MPI_OP_NULL;
  static const int error = MPI_Op_create(combine_two<kReduction>, 1, &op);
  out_op = op;
  return error;
}

int op_of(bp_reduction reduction, MPI_Op& out_op) {
  switch (reduction) {
    case BP_REDUCTION_SUM:
      return make_op<BP_REDUCTION_SUM>(out_op);
    case BP_REDUCTION_PRODUCT:
      return make_op<BP_REDUCTION_PRODUCT>(out_op);
    case BP_REDUCTION_MIN:
      return make_op<BP_REDUCTION_MIN>(out_op);
    case BP_REDUCTION_MAX:
      return make_op<BP_REDUCTION_MAX>(out_op);
    default:
      return MPI_ERR_OP;
  }
}

// ---- Starting and ending ------------------------------------------------------------------------

bool is_finalized() {
  int is_over = 0;
  MPI_Finalized(&is_over);
  return is_over != 0;
}

// Calls a function of MPI that waits for other processes, on a thread of its own, which stays if
// they do not come.
class InTime {
 public:
  explicit InTime(std::function<int()> call) {
    std::thread([shared = shared_, call = std::move(call)] {
      const int error = call();
      const std::lock_guard lock(shared->mutex);
      shared->error = error;
      shared->is_done = true;
      shared->changed.notify_all();
    }).detach();
  }

  // Returns whether the call has returned within the time.
  bool wait(uint64_t timeout_ns) {
    std::unique_lock lock(shared_->mutex);
    return wait_on(shared_->changed, lock, timeout_ns, [this] { return shared_->is_done; });
  }
  int error() const { return shared_->error; }

 private:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool is_done = false;
    int error = MPI_SUCCESS;
  };
  const std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
};

// Returns whether no launcher has started this process, as far as its environment tells. Open MPI
// then starts a daemon of its own for a world of one process, and ends the process if the daemon
// does not start. Other implementations start nothing.
bool is_alone() {
#ifdef OPEN_MPI
  // mpirun, PMIx (prterun, srun --mpi=pmix), PMI (srun), srun, and aprun set these.
  constexpr const char* kSigns[] = {
      "OMPI_COMM_WORLD_SIZE", "PMIX_NAMESPACE", "PMIX_RANK", "PMI_RANK",
      "SLURM_PROCID",         "ALPS_APP_PE"};
  return std::none_of(std::begin(kSigns), std::end(kSigns),
                      [](const char* sign) { return std::getenv(sign) != nullptr; });
#else
  return false;
#endif
}

// What is called before MPI ends.
struct Leaver {
  void (*leave)(void* context);
  void* context;
};

// What this module knows of MPI in this process. Its destructor ends MPI when the process exits.
class Process {
 public:
  ~Process() {
    leave_all();
    if (!is_ours_ || is_finalized() || is_stuck() || !starting_->wait(0)) return;
    // MPI_Finalize() waits for other processes, which may hang, and this one must exit.
    InTime(MPI_Finalize).wait(kExitNs);
  }

  int start(uint64_t timeout_ns, Place& out_place) {
    if (is_finalized()) return kFinalized;
    int is_started = 0, level = 0;
    MPI_Initialized(&is_started);
    if (is_started == 0) {
      if (is_alone()) {
        out_place = {};
        return MPI_SUCCESS;
      }
      if (const int error = initialize(timeout_ns)) return error;
    }
    MPI_Query_thread(&level);
    if (level < MPI_THREAD_MULTIPLE) return kOneThread;
    if (const int error = MPI_Comm_rank(MPI_COMM_WORLD, &out_place.process)) return error;
    return MPI_Comm_size(MPI_COMM_WORLD, &out_place.process_count);
  }

  void add(const Leaver& leaver) {
    const std::lock_guard lock(leaving_);
    leavers_.push_back(leaver);
  }
  void remove(const void* context) {
    const std::lock_guard lock(leaving_);
    std::erase_if(leavers_, [&](const Leaver& leaver) { return leaver.context == context; });
  }

  bool is_stuck() {
    const std::lock_guard lock(mutex_);
    return is_stuck_;
  }
  // Says that a thread waits in MPI for other processes.
  void set_stuck() {
    const std::lock_guard lock(mutex_);
    is_stuck_ = true;
  }

  void abandon(const Abandoned& left) {
    const std::lock_guard lock(mutex_);
    abandoned_.push_back(left);
  }

  // Frees the memory of abandoned requests that are over.
  void collect() {
    const std::lock_guard lock(mutex_);
    std::erase_if(abandoned_, [](const Abandoned& left) {
      int is_done = 0;
      const int error = MPI_Test(&left.request->request, &is_done, MPI_STATUS_IGNORE);
      if (error == MPI_SUCCESS && is_done == 0) return false;
      std::free(left.memory);
      delete left.request;
      return true;
    });
  }

 private:
  void leave_all() {
    const std::lock_guard lock(leaving_);
    for (const Leaver& leaver : leavers_) leaver.leave(leaver.context);
    leavers_.clear();
  }

  int initialize(uint64_t timeout_ns) {
    std::shared_ptr<InTime> starting;
    {
      const std::lock_guard lock(mutex_);
      if (starting_ == nullptr) starting_ = std::make_shared<InTime>(initialize_now);
      starting = starting_;
      is_ours_ = true;
    }
    return starting->wait(timeout_ns) ? starting->error() : kTimedOut;
  }

  static int initialize_now() {
    int level = 0;
    if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level)) {
      return error;
    }
    return MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  }

  std::mutex leaving_;  // It guards the next member.
  std::vector<Leaver> leavers_;

  std::mutex mutex_;  // It guards the members below.
  std::shared_ptr<InTime> starting_;
  bool is_ours_ = false, is_stuck_ = false;
  std::vector<Abandoned> abandoned_;
};

Process& process() {
  static Process only;
  return only;
}

int start(uint64_t timeout_ns, Place* out_place) { return process().start(timeout_ns, *out_place); }

// ---- Communicators ------------------------------------------------------------------------------

int make_communicator(const std::vector<int>& processes, int tag, MPI_Comm& out_comm) {
  MPI_Group world = MPI_GROUP_NULL, group = MPI_GROUP_NULL;
  int error = MPI_Comm_group(MPI_COMM_WORLD, &world);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Group_incl(world, static_cast<int>(processes.size()), processes.data(), &group);
  MPI_Group_free(&world);
  if (error != MPI_SUCCESS) return error;
  error = MPI_Comm_create_group(MPI_COMM_WORLD, group, tag, &out_comm);
  MPI_Group_free(&group);
  if (error != MPI_SUCCESS) return error;
  return MPI_Comm_set_errhandler(out_comm, MPI_ERRORS_RETURN);
}

int unite(const int* processes, int count, int tag, uint64_t timeout_ns,
          Communicator** out_communicator) {
  const auto made = std::make_shared<MPI_Comm>(MPI_COMM_NULL);
  InTime uniting([made, tag, list = std::vector<int>(processes, processes + count)] {
    return make_communicator(list, tag, *made);
  });
  if (!uniting.wait(timeout_ns)) {
    process().set_stuck();
    return kTimedOut;
  }
  if (uniting.error() != MPI_SUCCESS) return uniting.error();
  auto* const communicator = new (std::nothrow) Communicator{*made};
  if (communicator == nullptr) return kOutOfMemory;
  *out_communicator = communicator;
  return MPI_SUCCESS;
}

void leave(Communicator* communicator) {
  if (!is_finalized()) MPI_Comm_free(&communicator->comm);
  delete communicator;
}

// ---- Requests -----------------------------------------------------------------------------------

int begin_reduction(MPI_Comm comm, const RequestDesc& d, MPI_Request& out_request) {
  MPI_Datatype datatype = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
  if (const int error = datatype_of(d.dtype, datatype)) return error;
  if (const int error = op_of(d.reduction, op)) return error;
  if (d.operation == Operation::kAllReduce) {
    return MPI_Iallreduce(d.send, d.receive, d.count, datatype, op, comm, &out_request);
  }
  return MPI_Ireduce(d.send, d.receive, d.count, datatype, op, d.peer, comm, &out_request);
}

int begin_operation(MPI_Comm comm, const RequestDesc& d, MPI_Request& out_request) {
  const MPI_Datatype bytes = MPI_BYTE;
  switch (d.operation) {
    case Operation::kSend:
      return MPI_Isend(d.send, d.send_bytes, bytes, d.peer, d.tag, comm, &out_request);
    case Operation::kReceive:
      return MPI_Irecv(d.receive, d.receive_bytes, bytes, d.peer < 0 ? MPI_ANY_SOURCE : d.peer,
                       d.tag, comm, &out_request);
    case Operation::kAllReduce:
    case Operation::kReduce:
      return begin_reduction(comm, d, out_request);
    case Operation::kBroadcast:
      return MPI_Ibcast(d.receive, d.receive_bytes, bytes, d.peer, comm, &out_request);
    case Operation::kAllGather:
      return MPI_Iallgatherv(d.send, d.send_bytes, bytes, d.receive, d.receive_sizes,
                             d.receive_offsets, bytes, comm, &out_request);
    case Operation::kGather:
      return MPI_Igatherv(d.send, d.send_bytes, bytes, d.receive, d.receive_sizes,
                          d.receive_offsets, bytes, d.peer, comm, &out_request);
    case Operation::kScatter:
      return MPI_Iscatterv(d.send, d.send_sizes, d.send_offsets, bytes, d.receive, d.receive_bytes,
                           bytes, d.peer, comm, &out_request);
    case Operation::kAllToAll:
      return MPI_Ialltoallv(d.send, d.send_sizes, d.send_offsets, bytes, d.receive, d.receive_sizes,
                            d.receive_offsets, bytes, comm, &out_request);
  }
  return MPI_ERR_ARG;
}

int begin(Communicator* communicator, const RequestDesc* desc, Request** out_request) {
  if (is_finalized()) return kFinalized;
  auto made = std::unique_ptr<Request>(new (std::nothrow) Request{MPI_REQUEST_NULL});
  if (made == nullptr) return kOutOfMemory;
  const int error = begin_operation(communicator->comm, *desc, made->request);
  if (error != MPI_SUCCESS) return error;
  *out_request = made.release();
  return MPI_SUCCESS;
}

int test(Request* request, bool* out_is_done) {
  int is_done = 1;
  const int error =
      is_finalized() ? kFinalized : MPI_Test(&request->request, &is_done, MPI_STATUS_IGNORE);
  *out_is_done = is_done != 0 || error != MPI_SUCCESS;
  if (*out_is_done) delete request;
  return error;
}

int cancel(Request* request) {
  const int error = is_finalized() ? kFinalized : MPI_SUCCESS;
  if (error == MPI_SUCCESS) {
    MPI_Cancel(&request->request);
    MPI_Wait(&request->request, MPI_STATUS_IGNORE);
  }
  delete request;
  return error;
}

void abandon(Request* request, void* memory) {
  process().abandon({request, memory});
  if (!is_finalized()) process().collect();
}

void on_exit(void (*leave)(void* context), void* context) { process().add({leave, context}); }

void not_on_exit(void* context) { process().remove(context); }

void text(int error, char* out_text, size_t capacity) {
  char words[MPI_MAX_ERROR_STRING + 1] = "";
  int size = 0;
  const char* known = words;
  if (error == kTimedOut) known = "some processes did not come in time";
  if (error == kOneThread) known = "the program started MPI without MPI_THREAD_MULTIPLE";
  if (error == kFinalized) known = "MPI has ended in this process";
  if (error == kOutOfMemory) known = "there is no memory for a request";
  if (known == words && MPI_Error_string(error, words, &size) != MPI_SUCCESS) known = "an error";
  std::snprintf(out_text, capacity, "%s", known);
}

constexpr Api kApi = {.size_bytes = sizeof(Api),
                      .start = start,
                      .unite = unite,
                      .leave = leave,
                      .begin = begin,
                      .test = test,
                      .cancel = cancel,
                      .abandon = abandon,
                      .on_exit = on_exit,
                      .not_on_exit = not_on_exit,
                      .text = text};

}  // namespace
}  // namespace bp::mpi

extern "C" __attribute__((visibility("default"))) const bp::mpi::Api* backplane_cpu_mpi_api() {
  return &bp::mpi::kApi;
}

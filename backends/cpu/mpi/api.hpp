// What the table `mpi` needs of MPI, as plain functions. A module of its own implements them, so
// that the plugin is built and loaded without MPI.
//
// Rules:
//   Threads    Any thread may call every function.
//   Blocking   start() and unite() wait for other processes. No other function waits.
//   Errors     A function that returns a number returns 0, or an error that text() describes.
//   Ownership  Memory that an operation names, and its arrays, must live until test() or cancel()
//              says that the operation is over, or until abandon() takes it. After kFinalized, MPI
//              may still use it, so it must never be freed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backplane/collective.h"

namespace bp::mpi {

struct Communicator;
struct Request;

// This process among all processes that the launcher started together.
struct Place {
  int process = 0;
  int process_count = 1;
};

enum class Operation : uint32_t {
  kSend = 1,   // Sends send_bytes to `peer`.
  kReceive,    // Receives up to receive_bytes from `peer`, or from any rank if that is -1.
  kAllReduce,  // Reduces `count` elements.
  kReduce,     // The same; the result is at `peer` alone.
  kBroadcast,  // From `peer`, in `receive`, which has receive_bytes.
  kAllGather,  // Gathers send_bytes of this rank, and receive_sizes of all ranks.
  kGather,     // The same; the result is at `peer` alone.
  kScatter,    // send_sizes are read at `peer` alone; receives receive_bytes.
  kAllToAll,
};

// One operation of a communicator, on bytes or on elements. Parts of an operation lie behind each
// other in the order of the ranks.
struct RequestDesc {
  Operation operation = Operation::kSend;
  int peer = 0;
  int tag = 0;  // Of kSend and kReceive.
  std::byte* send = nullptr;
  std::byte* receive = nullptr;
  int send_bytes = 0, receive_bytes = 0;
  const int *send_sizes = nullptr, *send_offsets = nullptr;  // In bytes, by rank.
  const int *receive_sizes = nullptr, *receive_offsets = nullptr;
  int count = 0;
  bp_reduction reduction = 0;  // One that MPI can do step by step: no average, no scaled sum.
  bp_dtype dtype = 0;
};

// Further errors, which MPI does not have.
constexpr int kTimedOut = -1;     // Other processes did not come in time.
constexpr int kOneThread = -2;    // The program started MPI for one thread at a time.
constexpr int kFinalized = -3;    // MPI has ended in this process, and cannot start again.
constexpr int kOutOfMemory = -4;  // There is no memory for a request.

struct Api {
  uint64_t size_bytes;  // sizeof(Api). A module of another build has another one.

  // Starts MPI, unless it has started. MPI ends when the process exits, if start() started it. MPI
  // starts only when all processes start it. If they do not within timeout_ns, a thread stays
  // behind that waits for them, and a later start() waits for this thread. Open MPI does not start
  // in a process that no launcher has started: such a process is alone.
  int (*start)(uint64_t timeout_ns, Place* out_place);

  // Makes a communicator of these processes, whose ranks are in their order. All of them call it
  // with the same arguments. If some do not come within timeout_ns, a thread stays behind that
  // waits for them, and MPI is not ended properly when the process exits.
  int (*unite)(const int* processes, int count, int tag, uint64_t timeout_ns,
               Communicator** out_communicator);

  // Frees a communicator that has no request. All its processes do so.
  void (*leave)(Communicator* communicator);

  // Begins an operation. All ranks begin the operations of a communicator in the same order, except
  // for sends and receives.
  int (*begin)(Communicator* communicator, const RequestDesc* desc, Request** out_request);

  // Sets *out_is_done, and then the request is over, also after an error.
  int (*test)(Request* request, bool* out_is_done);

  // Ends a receive that no message has met. Returns 0 or kFinalized.
  int (*cancel)(Request* request);

  // Leaves a request to the module, which frees `memory` of std::malloc() when it is over.
  void (*abandon)(Request* request, void* memory);

  // Calls leave(context) when the process exits, before MPI ends. MPI must not end while another
  // thread is in one of its functions, so leave() stops the threads that call these functions.
  void (*on_exit)(void (*leave)(void* context), void* context);

  // Takes on_exit() back. If leave() is running, this waits for it.
  void (*not_on_exit)(void* context);

  // Writes what an error is, with a zero at the end.
  void (*text)(int error, char* out_text, size_t capacity);
};

// The only symbol of the module.
constexpr const char* kApiSymbol = "backplane_cpu_mpi_api";
using ApiFunction = const Api*();

}  // namespace bp::mpi

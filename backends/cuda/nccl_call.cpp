#include "backends/cuda/nccl_call.hpp"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "backplane/shell/shape.hpp"

namespace bp::cuda {
namespace {

constexpr int kNoType = -1;

// Returns NCCL's type of a dtype that NCCL reduces.
int type_of(bp_dtype dtype) {
  switch (dtype) {
    case BP_I8:
      return ncclInt8;
    case BP_U8:
      return ncclUint8;
    case BP_I32:
      return ncclInt32;
    case BP_U32:
      return ncclUint32;
    case BP_I64:
      return ncclInt64;
    case BP_U64:
      return ncclUint64;
    case BP_F16:
      return ncclFloat16;
    case BP_BF16:
      return ncclBfloat16;
    case BP_F32:
      return ncclFloat32;
    case BP_F64:
      return ncclFloat64;
    default:
      return kNoType;
  }
}

bool is_float(bp_dtype dtype) {
  return dtype == BP_F16 || dtype == BP_BF16 || dtype == BP_F32 || dtype == BP_F64;
}

uint64_t item(const NcclCall& call) { return static_cast<uint64_t>(dtype_size_bytes(call.dtype)); }

// The part of a range that belongs to each rank, in bytes.
struct Part {
  uint32_t rank;
  uint64_t offset, size_bytes;
};

std::vector<Part> parts_of(const NcclCall& call, const std::vector<uint64_t>& counts) {
  std::vector<Part> parts;
  uint64_t offset = 0;
  for (uint32_t rank = 0; rank < call.world_size; ++rank) {
    const uint64_t size_bytes = counts[rank] * item(call);
    parts.push_back({rank, offset, size_bytes});
    offset += size_bytes;
  }
  return parts;
}

// Submits one call to NCCL.
class Submission {
 public:
  Submission(const Nccl& nccl, ncclComm_t comm, NcclReductions& reductions, const NcclCall& call,
             cudaStream_t stream)
      : nccl_(nccl), comm_(comm), reductions_(reductions), c_(call), stream_(stream) {}

  void run(void* scratch) {
    switch (c_.kind) {
      case BP_COLLECTIVE_ALL_REDUCE:
        return done(
            nccl_.all_reduce(c_.send, c_.receive, c_.send_counts[0], type(), op(), comm_, stream_),
            "ncclAllReduce");
      case BP_COLLECTIVE_REDUCE:
        return reduce_to(c_.root, c_.send, c_.send_counts[0]);
      case BP_COLLECTIVE_BROADCAST:
        return broadcast_from(c_.root, c_.send, c_.receive, c_.send_counts[0] * item(c_));
      case BP_COLLECTIVE_ALL_GATHER:
        return all_gather();
      case BP_COLLECTIVE_REDUCE_SCATTER:
        return reduce_scatter();
      case BP_COLLECTIVE_ALL_TO_ALL:
        for (const Part& p : parts_of(c_, c_.send_counts)) send_to(p.rank, c_.send + p.offset, p);
        for (const Part& p : parts_of(c_, c_.receive_counts)) {
          receive_from(p.rank, c_.receive + p.offset, p);
        }
        return;
      case BP_COLLECTIVE_GATHER:
        return gather();
      case BP_COLLECTIVE_SCATTER:
        return scatter();
      case BP_COLLECTIVE_SEND:
        return send_to(c_.root, c_.send, {c_.root, 0, c_.send_counts[0] * item(c_)});
      case BP_COLLECTIVE_RECEIVE:
        return receive_from(c_.root, c_.receive, {c_.root, 0, c_.send_counts[0] * item(c_)});
      default:  // A barrier is a sum that nobody reads.
        return done(nccl_.all_reduce(scratch, scratch, 1, ncclInt32, ncclSum, comm_, stream_),
                    "ncclAllReduce");
    }
  }

 private:
  void done(ncclResult_t result, const char* call) { check(nccl_, result, call); }
  ncclDataType_t type() const { return static_cast<ncclDataType_t>(type_of(c_.dtype)); }
  ncclRedOp_t op() { return reductions_.find(c_); }

  void reduce_to(uint32_t root, const std::byte* from, uint64_t count) {
    done(
        nccl_.reduce(from, c_.receive, count, type(), op(), static_cast<int>(root), comm_, stream_),
        "ncclReduce");
  }
  void broadcast_from(uint32_t root, const std::byte* from, std::byte* to, uint64_t size_bytes) {
    if (size_bytes == 0) return;
    // Only the root's range is read; the others may have none.
    const std::byte* const source = c_.rank == root ? from : to;
    done(nccl_.broadcast(source, to, size_bytes, ncclInt8, static_cast<int>(root), comm_, stream_),
         "ncclBroadcast");
  }
  void send_to(uint32_t peer, const std::byte* from, const Part& part) {
    if (part.size_bytes == 0) return;
    done(nccl_.send(from, part.size_bytes, ncclInt8, static_cast<int>(peer), comm_, stream_),
         "ncclSend");
  }
  void receive_from(uint32_t peer, std::byte* to, const Part& part) {
    if (part.size_bytes == 0) return;
    done(nccl_.receive(to, part.size_bytes, ncclInt8, static_cast<int>(peer), comm_, stream_),
         "ncclRecv");
  }

  void all_gather() {
    if (c_.is_even) {
      return done(nccl_.all_gather(c_.send, c_.receive, c_.send_counts[0] * item(c_), ncclInt8,
                                   comm_, stream_),
                  "ncclAllGather");
    }
    for (const Part& p : parts_of(c_, c_.send_counts)) {
      broadcast_from(p.rank, c_.send, c_.receive + p.offset, p.size_bytes);
    }
  }

  void reduce_scatter() {
    if (c_.is_even) {
      return done(nccl_.reduce_scatter(c_.send, c_.receive, c_.send_counts[0], type(), op(), comm_,
                                       stream_),
                  "ncclReduceScatter");
    }
    for (const Part& p : parts_of(c_, c_.send_counts)) {
      if (p.size_bytes != 0) reduce_to(p.rank, c_.send + p.offset, c_.send_counts[p.rank]);
    }
  }

  // Gathers. If the call is in place, the root's own part is already in its place, and is neither
  // sent nor received.
  void gather() {
    const std::vector<Part> parts = parts_of(c_, c_.send_counts);
    const bool is_root = c_.rank == c_.root;
    const bool is_there = is_root && c_.send == c_.receive + parts[c_.rank].offset;
    if (!is_there) send_to(c_.root, c_.send, parts[c_.rank]);
    if (!is_root) return;
    for (const Part& p : parts) {
      if (p.rank != c_.rank || !is_there) receive_from(p.rank, c_.receive + p.offset, p);
    }
  }

  void scatter() {
    const std::vector<Part> parts = parts_of(c_, c_.send_counts);
    const bool is_root = c_.rank == c_.root;
    const bool is_there = is_root && c_.receive == c_.send + parts[c_.rank].offset;
    if (is_root) {
      for (const Part& p : parts) {
        if (p.rank != c_.rank || !is_there) send_to(p.rank, c_.send + p.offset, p);
      }
    }
    if (!is_there) receive_from(c_.root, c_.receive, parts[c_.rank]);
  }

  const Nccl& nccl_;
  const ncclComm_t comm_;
  NcclReductions& reductions_;
  const NcclCall& c_;
  const cudaStream_t stream_;
};

}  // namespace

const char* collective_name(bp_collective_kind kind) {
  constexpr const char* kNames[] = {"",           "all_reduce",     "reduce",     "broadcast",
                                    "all_gather", "reduce_scatter", "all_to_all", "gather",
                                    "scatter",    "send",           "receive",    "barrier"};
  return kind < std::size(kNames) ? kNames[kind] : "";
}

std::string refuse_nccl_call(bp_collective_kind kind, bp_reduction reduction, bp_dtype dtype) {
  if (std::string why = refuse_collective(kind, dtype); !why.empty()) return why;
  if (!reduces(kind)) return "";
  const bool has_type = type_of(dtype) != kNoType;
  const bool scales = reduction == BP_REDUCTION_AVERAGE || reduction == BP_REDUCTION_SCALED_SUM;
  const bool is_known = reduction >= BP_REDUCTION_SUM && reduction <= BP_REDUCTION_SCALED_SUM;
  if (has_type && is_known && (!scales || is_float(dtype))) return "";
  return "NCCL has no reduction " + std::to_string(reduction) + " of dtype " +
         std::to_string(dtype);
}

NcclReductions::~NcclReductions() {
  for (const ncclRedOp_t op : made_) nccl_.destroy_reduction(op, comm_);
}

ncclRedOp_t NcclReductions::find(const NcclCall& call) {
  switch (call.reduction) {
    case BP_REDUCTION_SUM:
      return ncclSum;
    case BP_REDUCTION_PRODUCT:
      return ncclProd;
    case BP_REDUCTION_MIN:
      return ncclMin;
    case BP_REDUCTION_MAX:
      return ncclMax;
    case BP_REDUCTION_AVERAGE:
      return ncclAvg;
    default:
      break;
  }
  // The factor has the dtype of the elements. NCCL reads it during the call.
  double wide = call.scale;
  auto single = static_cast<float>(wide);
  __half half = __double2half(wide);
  __nv_bfloat16 brain = __double2bfloat16(wide);
  void* const factor = call.dtype == BP_F64   ? static_cast<void*>(&wide)
                       : call.dtype == BP_F32 ? static_cast<void*>(&single)
                       : call.dtype == BP_F16 ? static_cast<void*>(&half)
                                              : static_cast<void*>(&brain);
  ncclRedOp_t op = ncclSum;
  check(nccl_,
        nccl_.create_scaled_sum(&op, factor, static_cast<ncclDataType_t>(type_of(call.dtype)),
                                ncclScalarHostImmediate, comm_),
        "ncclRedOpCreatePreMulSum");
  made_.push_back(op);
  return op;
}

void submit_nccl_call(const Nccl& nccl, ncclComm_t comm, NcclReductions& reductions,
                      const NcclCall& call, void* scratch, cudaStream_t stream) {
  Submission(nccl, comm, reductions, call, stream).run(scratch);
}

}  // namespace bp::cuda

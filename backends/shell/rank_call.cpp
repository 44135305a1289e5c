#include "backplane/shell/rank_call.hpp"

#include <new>

#include "backplane/shell/combine.hpp"

namespace bp {
namespace {

std::shared_ptr<GroupMemory> memory_for(GroupBackend& backend, const bp_buffer_ref& range,
                                        const RankCall& call, bp_device* device, bool is_written,
                                        const std::string& name) {
  const uint64_t elements = is_written ? received_elements(call) : sent_elements(call);
  const char* const what = is_written ? "receive" : "send";
  if (elements == 0) return nullptr;
  check_elements(range, elements, call.dtype, name, what);
  return backend.memory(range, device, is_written, "submit", what);
}

}  // namespace

std::string refuse_combined(bp_collective_kind kind, bp_reduction reduction, bp_dtype dtype) {
  if (std::string why = refuse_collective(kind, dtype); !why.empty()) return why;
  if (reduces(kind) && !kernels::can_combine(reduction, dtype)) {
    return "reduction " + std::to_string(reduction) + " does not take dtype " +
           std::to_string(dtype);
  }
  return "";
}

void read_rank_call(GroupBackend& backend, const bp_collective_call& theirs, const RankPlace& place,
                    const std::string& name, RankCall& call) {
  static_cast<GroupCall&>(call) = read_call(theirs, place.rank, place.world_size, name);
  call.timeout_ns = theirs.timeout_ns;
  call.queue = backend.queue(theirs.stream, place.device, "submit");
  call.send = memory_for(backend, theirs.send, call, place.device, false, name);
  call.receive = memory_for(backend, theirs.receive, call, place.device, true, name);
}

Outcome outcome_of(const std::function<void()>& work) {
  try {
    work();
    return {};
  } catch (const StatusError& e) {
    return {e.status(), e.what()};
  } catch (const std::bad_alloc&) {
    return {BP_OUT_OF_MEMORY, "out of host memory"};
  } catch (const std::exception& e) {
    return {BP_INTERNAL, e.what()};
  }
}

}  // namespace bp

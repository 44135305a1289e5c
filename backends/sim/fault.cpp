// The extension "bp.test.fault": failures that a test orders.
#include "backends/sim/entry.hpp"
#include "backends/sim/stream.hpp"
#include "backplane/test_fault.h"

namespace bp::sim {
namespace {

bp_status fault_fail_next(void* self, bp_stream* handle, bp_test_fault_kind kind,
                          bp_status status) {
  return entry(self, [&](const Instance&) {
    const Stream& s = stream_of(handle, "fail_next");
    if (kind > BP_TEST_FAULT_CORRUPTION) {
      refuse(BP_INVALID_ARGUMENT, "fail_next: kind is " + std::to_string(kind) +
                                      "; 0 and the BP_TEST_FAULT_* values are allowed");
    }
    const bool needs_failure = kind == BP_TEST_FAULT_SUBMISSION || kind == BP_TEST_FAULT_DATA;
    if (needs_failure == (status == BP_OK)) {
      refuse(BP_INVALID_ARGUMENT, "fail_next: status is " + std::to_string(status) +
                                      ", and BP_OK belongs to kind 0 and corruption alone");
    }
    s.conduct->order({kind, status});
    return BP_OK;
  });
}

bp_status fault_lose_device(void* self, bp_device* handle) {
  return entry(self, [&](const Instance& i) {
    any_device_of(i, handle, "lose_device", "device").card().lose();
    return BP_OK;
  });
}

bp_status fault_fail_allocation(void* self, bp_device* handle, uint64_t index) {
  return entry(self, [&](const Instance& i) {
    device_of(i, handle, "fail_allocation").fail_allocation(index);
    return BP_OK;
  });
}

}  // namespace

constinit const bp_test_fault_ops kFaults{
    .struct_size = sizeof(bp_test_fault_ops),
    .struct_type = BP_STRUCT_TEST_FAULT_OPS,
    .fail_next = fault_fail_next,
    .lose_device = fault_lose_device,
    .fail_allocation = fault_fail_allocation,
};

}  // namespace bp::sim

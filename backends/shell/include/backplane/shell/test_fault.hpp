// The extension "bp.test.fault": failures that a test orders. A stream or a device keeps the order
// until its work takes it.
//
//   constinit const bp_test_fault_ops kFaults = TestFaultOps<Traits>::table();
//
// `Traits` are those of device_ops.hpp, with these static members besides:
//   faults_of(handle, call)   the TestFaults of a stream; throws StatusError for a handle of no
//                             stream, and for one whose device is lost
//   allocations_of(device)    its FailingAllocation
//   lose(device)              loses it, until it is reset; throws StatusError of BP_UNSUPPORTED for
//                             a device that cannot be lost
//
// The function that submits work takes the fault of its stream. The task calls throw_test_fault()
// before the work for BP_TEST_FAULT_SUBMISSION, and after it for BP_TEST_FAULT_DATA. For
// BP_TEST_FAULT_CORRUPTION the task changes a byte of what the work wrote.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "backplane/shell/entry.hpp"
#include "backplane/shell/queue.hpp"
#include "backplane/test_fault.h"

namespace bp {

// The fault of one piece of work. A kind of 0 means no fault.
struct TestFault {
  bp_test_fault_kind kind = 0;
  bp_status status = BP_OK;
};

[[noreturn]] inline void throw_test_fault(const TestFault& fault) {
  const std::string text =
      "a failure that bp.test.fault ordered, with the status " + std::to_string(fault.status);
  if (fault.kind == BP_TEST_FAULT_DATA) throw DataFailure(fault.status, text);
  throw StatusError(fault.status, text);
}

// The fault that a test ordered for the next piece of work of one stream. If nothing was ordered, a
// submission costs one atomic load more.
class TestFaults {
 public:
  // Orders a fault, which replaces an earlier order.
  void order(TestFault fault) {
    const std::lock_guard lock(mutex_);
    fault_ = fault;
    is_ordered_.store(fault.kind != 0, std::memory_order_release);
  }

  // Returns whether a fault is ordered, for a backend that submits other work then.
  bool is_ordered() const { return is_ordered_.load(std::memory_order_acquire); }

  // Takes the order. Returns no fault if `queue` has failed, because the stream refuses the work
  // then.
  TestFault take(const Queue& queue) {
    if (!is_ordered() || queue.has_failed()) return {};
    const std::lock_guard lock(mutex_);
    is_ordered_.store(false, std::memory_order_release);
    return std::exchange(fault_, {});
  }

 private:
  std::atomic<bool> is_ordered_ = false;
  std::mutex mutex_;  // It guards `fault_`.
  TestFault fault_;
};

// The allocation of one device that a test ordered to fail.
class FailingAllocation {
 public:
  // The next allocation fails if `index` is 0. No allocation fails if it is UINT64_MAX.
  void order(uint64_t index) { left_ = index; }

  // Counts an allocation, which calls it first. Throws StatusError of BP_OUT_OF_MEMORY if this
  // allocation was ordered to fail.
  void count() {
    uint64_t left = left_;
    do {
      if (left == UINT64_MAX) return;
    } while (!left_.compare_exchange_weak(left, left - 1));
    if (left == 0) refuse(BP_OUT_OF_MEMORY, "allocate: bp.test.fault ordered that this one fails");
  }

 private:
  std::atomic<uint64_t> left_ = UINT64_MAX;
};

// Serves bp_backend::get_extension() of a backend whose only extension is this one, in the member
// `faults` of its Instance.
template <typename Instance>
bp_status get_test_faults(void* self, const char* name, uint32_t version,
                          const void** out_extension) {
  return entry<Instance>(self, [&](const Instance& i) -> bp_status {
    require(name, "get_extension: name");
    require(out_extension, "get_extension: out_extension");
    if (std::string_view(name) != BP_TEST_FAULT_NAME || version != BP_TEST_FAULT_VERSION) {
      refuse(BP_NOT_FOUND, "get_extension: there is no \"" + std::string(name) + "\" version " +
                               std::to_string(version) +
                               "; there is \"" BP_TEST_FAULT_NAME "\" version 1");
    }
    *out_extension = &i.faults;
    return BP_OK;
  });
}

template <typename Traits>
class TestFaultOps {
 public:
  static constexpr bp_test_fault_ops table() {
    return {.struct_size = sizeof(bp_test_fault_ops),
            .struct_type = BP_STRUCT_TEST_FAULT_OPS,
            .fail_next = fail_next,
            .lose_device = lose_device,
            .fail_allocation = fail_allocation};
  }

 private:
  using Instance = typename Traits::Instance;

  static bp_status fail_next(void* self, bp_stream* handle, bp_test_fault_kind kind,
                             bp_status status) {
    return entry<Instance>(self, [&](const Instance&) -> bp_status {
      TestFaults& faults = Traits::faults_of(handle, "fail_next");
      if (kind > BP_TEST_FAULT_CORRUPTION) {
        refuse(BP_INVALID_ARGUMENT, "fail_next: kind is " + std::to_string(kind) +
                                        "; 0 and the BP_TEST_FAULT_* values are allowed");
      }
      const bool needs_failure = kind == BP_TEST_FAULT_SUBMISSION || kind == BP_TEST_FAULT_DATA;
      if (needs_failure == (status == BP_OK)) {
        refuse(BP_INVALID_ARGUMENT, "fail_next: status is " + std::to_string(status) +
                                        ", and BP_OK belongs to kind 0 and corruption alone");
      }
      faults.order({kind, status});
      return BP_OK;
    });
  }

  static bp_status lose_device(void* self, bp_device* handle) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Traits::lose(Traits::any_device_of(i, handle, "lose_device"));
      return BP_OK;
    });
  }

  static bp_status fail_allocation(void* self, bp_device* handle, uint64_t index) {
    return entry<Instance>(self, [&](const Instance& i) -> bp_status {
      Traits::allocations_of(Traits::device_of(i, handle, "fail_allocation")).order(index);
      return BP_OK;
    });
  }
};

}  // namespace bp

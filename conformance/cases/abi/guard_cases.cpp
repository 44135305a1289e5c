// Cases for the device guard of api/include/backplane/device.h.
#include <atomic>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"

namespace bp::conformance {
namespace {

const bp_device_guard_ops& guard_of(Context& t) {
  if (bp_target_has_table(&t.target(), BP_STRUCT_DEVICE_GUARD_OPS) == 0) {
    t.not_supported("the device has no guard: its library knows no current device");
  }
  return *t.target().guard;
}

// Returns the devices of the backend, the one under test first, and NULL for none.
std::vector<bp_device*> places(Context& t) {
  std::vector<bp_device*> list = {t.target().device};
  for (uint64_t i = 0; i < bp_registry_target_count(t.registry()); ++i) {
    const bp_target* const target = bp_registry_target(t.registry(), i);
    if (target->plugin == t.target().plugin && target != &t.target()) {
      list.push_back(target->device);
    }
  }
  list.push_back(nullptr);
  return list;
}

bp_device* exchange(Context& t, bp_device* device) {
  const bp_device_guard_ops& guard = guard_of(t);
  bp_device* previous = t.sentinel<bp_device>();
  t.require_ok(guard.exchange(guard.self, device, &previous), "exchange");
  return previous;
}

// Restores the current device when the case ends, in any way.
class Restore {
 public:
  explicit Restore(Context& t) : guard_(guard_of(t)), previous_(exchange(t, nullptr)) {}
  ~Restore() {
    bp_device* unused = nullptr;
    static_cast<void>(guard_.exchange(guard_.self, previous_, &unused));
  }
  Restore(const Restore&) = delete;

 private:
  const bp_device_guard_ops& guard_;
  bp_device* const previous_;
};

void exchanges_nest(Context& t) {
  const Restore restore(t);
  const std::vector<bp_device*> devices = places(t);
  std::vector<bp_device*> previous;
  bp_device* current = nullptr;
  for (int round = 0; round < 3; ++round) {
    for (bp_device* const device : devices) {
      previous.push_back(exchange(t, device));
      t.expect_eq(previous.back(), current, "the device that was current before");
      current = device;
    }
  }
  while (!previous.empty()) {
    bp_device* const gone = exchange(t, previous.back());
    t.expect_eq(gone, current, "the device that is current when the scope ends");
    current = previous.back();
    previous.pop_back();
  }
}

// While this thread checks, another thread has no current device.
void other_threads_are_not_affected(Context& t) {
  const Restore restore(t);
  const bp_device_guard_ops& guard = guard_of(t);
  bp_device* const device = t.target().device;
  exchange(t, device);
  std::atomic<int> step = 0;
  bp_device* theirs = t.sentinel<bp_device>();
  std::thread other([&] {
    bp_device* before = nullptr;
    static_cast<void>(guard.exchange(guard.self, nullptr, &before));
    step = 1;
    while (step != 2) std::this_thread::yield();
    static_cast<void>(guard.exchange(guard.self, before, &theirs));
  });
  while (step != 1) std::this_thread::yield();
  bp_device* mine = t.sentinel<bp_device>();
  const bp_status status = guard.exchange(guard.self, device, &mine);
  step = 2;
  other.join();
  t.require_ok(status, "exchange");
  t.expect_eq(mine, device, "the current device of this thread while another thread has none");
  t.expect_eq(theirs, static_cast<bp_device*>(nullptr), "the current device of the other thread");
}

// Calls entries of the other tables, valid and invalid ones, while `current` is the current device.
void use_everything(Context& t) {
  const bp_allocator_ops& memory = *t.target().allocator;
  const bp_stream_ops& streams = *t.target().streams;
  const OwnedStream stream = make_stream(t);
  const OwnedEvent event = make_event(t);
  const OwnedBuffer buffer = make_buffer(t, 4096);
  const bp_buffer_ref whole = range(buffer, 0, 4096), outside = range(buffer, 4000, 4096);
  write(t, stream.get(), whole, std::vector<uint8_t>(4096, 1));
  static_cast<void>(read(t, stream.get(), whole));
  t.require_ok(t.target().events->record(t.target().events->self, event.get(), stream.get()),
               "record");
  t.require_ok(streams.wait_event(streams.self, stream.get(), event.get()), "wait_event");
  const uint8_t zero = 0;
  bp_buffer* none = nullptr;
  const bp_allocate_desc huge{.struct_size = sizeof(bp_allocate_desc),
                              .struct_type = BP_STRUCT_ALLOCATE_DESC,
                              .size_bytes = UINT64_MAX};
  const bp_stream_desc unknown{.struct_size = sizeof(bp_stream_desc),
                               .struct_type = BP_STRUCT_STREAM_DESC,
                               .flags = 1u << 31};
  bp_stream* no_stream = nullptr;
  t.expect(memory.fill(memory.self, stream.get(), &outside, &zero, 1) != BP_OK, "a fill outside");
  t.expect(memory.allocate(memory.self, t.target().device, &huge, &none) != BP_OK, "too much");
  t.expect(streams.create(streams.self, t.target().device, &unknown, &no_stream) != BP_OK,
           "an unknown flag");
  bp_error_clear();
  finish(t, stream.get());
}

void other_entries_leave_it_alone(Context& t) {
  const Restore restore(t);
  for (bp_device* const device : places(t)) {
    exchange(t, device);
    use_everything(t);
    t.expect_eq(exchange(t, nullptr), device, "the current device after calls of other entries");
  }
}

void never_fails_for_devices_and_none(Context& t) {
  const Restore restore(t);
  const bp_device_guard_ops& guard = guard_of(t);
  for (int i = 0; i < 100; ++i) {
    for (bp_device* const device : places(t)) {
      bp_device* previous = nullptr;
      t.require_ok(guard.exchange(guard.self, device, &previous), "exchange");
    }
  }
}

void asking_initializes_nothing(Context& t) {
  const bp_device_guard_ops& guard = guard_of(t);
  for (bp_device* const device : places(t)) {
    if (device == nullptr) continue;
    uint32_t first = 2, second = 2;
    t.require_ok(guard.is_initialized(guard.self, device, &first), "is_initialized");
    t.require_ok(guard.is_initialized(guard.self, device, &second), "is_initialized");
    t.expect(first <= 1, "is_initialized gives 0 or 1");
    t.expect_eq(second, first, "is_initialized asked again");
  }
  use_everything(t);
  uint32_t in_use = 2;
  t.require_ok(guard.is_initialized(guard.self, t.target().device, &in_use), "is_initialized");
  t.expect_eq(in_use, 1u, "is_initialized of a device in use");
}

}  // namespace

void add_guard_cases(std::vector<Case>& cases) {
  add_api_cases(
      cases, "guard",
      {
          {"exchanges_nest", {"GUARD-1"}, exchanges_nest},
          {"never_fails_for_devices_and_none", {"GUARD-2"}, never_fails_for_devices_and_none},
          {"other_threads_are_not_affected", {"GUARD-3"}, other_threads_are_not_affected},
          {"other_entries_leave_it_alone", {"GUARD-4"}, other_entries_leave_it_alone},
          {"asking_initializes_nothing", {"GUARD-5"}, asking_initializes_nothing},
      });
}

}  // namespace bp::conformance

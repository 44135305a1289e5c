// Cases for loading and unloading: what a plugin leaves behind, and what works after a fork.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "conformance/cases/families.hpp"
#include "conformance/cases/fixtures/api_cases.hpp"
#include "conformance/cases/fixtures/child_routines.hpp"
#include "conformance/cases/fixtures/fixtures.hpp"
#include "conformance/cases/fixtures/resources.hpp"
#include "conformance/cases/fixtures/test_host.hpp"

namespace bp::conformance {
namespace {

// Makes calls that a device refuses.
void make_refused_calls(const RawInstance& instance, bp_device* device) {
  const bp_allocator_ops& memory = instance.allocator();
  const bp_stream_ops& streams = instance.streams();
  bp_allocate_desc desc{.struct_size = sizeof(bp_allocate_desc),
                        .struct_type = BP_STRUCT_ALLOCATE_DESC,
                        .size_bytes = UINT64_MAX};
  const bp_stream_desc unknown{.struct_size = sizeof(bp_stream_desc),
                               .struct_type = BP_STRUCT_STREAM_DESC,
                               .flags = 1u << 31};
  bp_buffer* buffer = nullptr;
  bp_stream* stream = nullptr;
  for (int i = 0; i < 10; ++i) {
    static_cast<void>(memory.allocate(memory.self, device, &desc, &buffer));
    static_cast<void>(streams.create(streams.self, device, &unknown, &stream));
  }
  desc.usage = 1u << 31;
  desc.size_bytes = 64;
  static_cast<void>(memory.allocate(memory.self, device, &desc, &buffer));
}

// Another instance of the backend, and the device of the case in it. Ends the case as NotSupported
// if the backend has one instance alone.
struct SecondInstance {
  explicit SecondInstance(Context& t)
      : entry(open_entry(t)), host(t.subject().options), instance(entry, host) {
    if (instance.status() == BP_ALREADY_EXISTS) t.not_supported(instance.problem());
    t.require(instance.problem().empty(), instance.problem());
    device = instance.device(t.target().index);
    t.require(device != nullptr, "a second instance has the same devices");
  }
  SecondInstance(const SecondInstance&) = delete;

  const PluginEntry entry;
  TestHost host;
  RawInstance instance;
  bp_device* device = nullptr;
};

void failed_calls_leave_no_host_memory(Context& t) {
  SecondInstance second(t);
  auto& [entry, host, instance, device] = second;
  t.expect_eq(use_device(instance, device, host), std::string(), "a use of the device");
  make_refused_calls(instance, device);
  t.expect_eq(use_device(instance, device, host), std::string(), "a use behind refused calls");
  t.expect_eq(instance.end(), BP_OK, "shutdown");
  t.expect_eq(host.block_count(), int64_t{0}, "blocks of host memory left after shutdown");
}

// The handles of two instances end in every order, and one instance ends first.
void instances_end_in_any_order(Context& t) {
  const PluginEntry entry = open_entry(t);
  for (const bool first_ends_first : {true, false}) {
    TestHost hosts[] = {TestHost(t.subject().options), TestHost(t.subject().options)};
    RawInstance a(entry, hosts[0]), b(entry, hosts[1]);
    if (b.status() == BP_ALREADY_EXISTS) t.not_supported(b.problem());
    t.require(a.problem().empty() && b.problem().empty(), a.problem() + b.problem());
    bp_device *const of_a = a.device(t.target().index), *const of_b = b.device(t.target().index);
    for (int i = 0; i < 3; ++i) {
      t.expect_eq(use_device(a, of_a, hosts[0]), std::string(), "a use of the first instance");
      t.expect_eq(use_device(b, of_b, hosts[1]), std::string(), "a use of the second instance");
    }
    RawInstance &early = first_ends_first ? a : b, &late = first_ends_first ? b : a;
    bp_device* const device = first_ends_first ? of_b : of_a;
    TestHost& host = hosts[first_ends_first ? 1 : 0];
    t.expect_eq(early.end(), BP_OK, "shutdown of one");
    t.expect_eq(use_device(late, device, host), std::string(), "a use of the one that is left");
    t.expect_eq(late.end(), BP_OK, "shutdown of the other");
    for (const TestHost& each : hosts) {
      t.expect_eq(each.block_count(), int64_t{0}, "blocks of host memory left after shutdown");
    }
  }
}

// A callback that ends when the case lets it. It does not block a thread that submits.
class Blocker {
 public:
  static void run(void* self, bp_status) {
    auto& blocker = *static_cast<Blocker*>(self);
    blocker.is_inline_ = std::this_thread::get_id() == blocker.submitter_;
    blocker.has_begun_ = true;
    while (!blocker.is_inline_ && !blocker.may_end_) std::this_thread::yield();
    blocker.has_ended_ = true;
  }
  bool has_begun() const { return has_begun_; }
  bool is_inline() const { return is_inline_; }
  void end() { may_end_ = true; }
  bool has_ended() const { return has_ended_; }

 private:
  const std::thread::id submitter_ = std::this_thread::get_id();
  std::atomic<bool> is_inline_ = false, has_begun_ = false, may_end_ = false, has_ended_ = false;
};

void shutdown_can_run_out_of_time(Context& t) {
  SecondInstance second(t);
  auto& [entry, host, instance, device] = second;
  const bp_stream_ops& streams = instance.streams();
  bp_stream* stream = nullptr;
  t.require(streams.create(streams.self, device, nullptr, &stream) == BP_OK, host.take_text());
  Blocker blocker;
  t.require(streams.add_callback(streams.self, stream, Blocker::run, &blocker) == BP_OK,
            host.take_text());
  for (uint64_t waited_ns = 0; !blocker.has_begun() && waited_ns < kTimeoutNs; waited_ns += 1000) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(1000));
  }
  t.require(blocker.has_begun(), "the callback begins");
  if (blocker.is_inline()) t.not_supported("all work ends in the call that submits it");
  for (const uint64_t timeout_ns : {uint64_t{0}, kMomentNs}) {
    t.expect_eq(instance.end(timeout_ns), BP_TIMEOUT, "shutdown while a callback runs");
    t.expect(!host.take_text().empty(), "an error text of shutdown");
  }
  blocker.end();
  t.expect_eq(use_device(instance, device, host), std::string(), "a use behind the timeouts");
  t.expect_eq(instance.end(kTimeoutNs), BP_OK, "shutdown when the work may end");
  t.expect(blocker.has_ended(), "the callback has ended before shutdown() returns");
  t.expect_eq(host.block_count(), int64_t{0}, "blocks of host memory left after shutdown");
}

// The host's table and the request end where their pages end: a read beyond the end ends the
// process.
void host_table_is_read_to_its_size(Context& t) {
  const PluginEntry entry = open_entry(t);
  TestHost host(t.subject().options);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const memory =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  t.require(memory != MAP_FAILED, "two pages");
  char* const end = static_cast<char*>(memory) + page;
  t.require(mprotect(end, page, PROT_NONE) == 0, "a page that nobody can read");
  auto* const table = reinterpret_cast<bp_host*>(end - sizeof(bp_host));
  std::memcpy(table, &host.table(), sizeof(bp_host));
  bp_entry_request request = entry_request(host);
  request.host = table;
  bp_entry_reply reply = blank_reply();
  const bp_status status = entry.get()(&request, &reply);
  if (status == BP_ALREADY_EXISTS) t.not_supported(host.take_text());
  t.require(status == BP_OK, "the entry: " + host.take_text());
  t.expect_eq(reply.backend->shutdown(reply.backend->self, UINT64_MAX), BP_OK, "shutdown");
  munmap(memory, 2 * page);
}

void reply_is_written_to_its_size(Context& t) {
  const PluginEntry entry = open_entry(t);
  TestHost host(t.subject().options);
  struct Guarded {
    bp_entry_reply reply;
    uint8_t behind[64];
  } guarded{blank_reply(), {}};
  std::memset(guarded.behind, 0x5A, sizeof(guarded.behind));
  const bp_entry_request request = entry_request(host);
  const bp_status status = entry.get()(&request, &guarded.reply);
  if (status == BP_ALREADY_EXISTS) t.not_supported(host.take_text());
  t.require(status == BP_OK, "the entry: " + host.take_text());
  t.expect_eq(guarded.reply.backend->shutdown(guarded.reply.backend->self, UINT64_MAX), BP_OK,
              "shutdown");
  for (size_t i = 0; i < sizeof(guarded.behind); ++i) {
    if (guarded.behind[i] == 0x5A) continue;
    t.fail({"byte " + std::to_string(i) + " behind the reply was written", "overrun", "SIZE-2"});
  }
}

}  // namespace

// ---- Routines of processes of their own ---------------------------------------------------------

// Probes and forks, and then uses the device in both processes.
void fork_after_probe(const ChildTask& task) {
  const PluginEntry entry(task.plugin);
  if (entry.get() == nullptr) child_fails("the plugin exports no bp_backend_entry");
  TestHost host(task.option_list());
  RawInstance instance(entry, host);
  if (!instance.problem().empty()) child_fails(instance.problem());
  const bp_device_ops& devices = instance.devices();
  uint64_t count = 0;
  if (devices.probe(devices.self, &count) != BP_OK) child_fails("probe: " + host.take_text());
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG,
          SIGKILL);  // It may hang in the driver for longer than its parent lives.
    bp_device* const device = instance.device(task.device);
    const std::string problem =
        device == nullptr ? "the device is gone" : use_device(instance, device, host);
    if (!problem.empty()) dprintf(STDERR_FILENO, "behind a fork: %s\n", problem.c_str());
    _exit(problem.empty() ? 0 : 1);
  }
  int wait_status = -1;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(15);
  while (waitpid(pid, &wait_status, WNOHANG) == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (wait_status != 0) {
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);  // Otherwise it would count as a process that the backend left.
    child_fails("a child that was forked behind probe() cannot use the device", "DEVICE-4", "fork");
  }
  const std::string problem = use_device(instance, instance.device(task.device), host);
  if (!problem.empty()) child_fails("behind its fork the parent cannot use the device: " + problem);
}

namespace {

// What a plugin may leave behind.
struct Ledger {
  Resources process;
  int64_t host_blocks = 0;
};

Ledger take_ledger(const TestHost& host) { return {resources_in_use(), host.block_count()}; }

void compare(const Ledger& before, const Ledger& after, int reloads) {
  const auto grown = [&](const char* what, int64_t was, int64_t is, int64_t allowed) {
    if (is - was <= allowed) return;
    child_fails(std::to_string(reloads) + " reloads left " + std::to_string(is - was) + " more " +
                    what + " than there were: " + std::to_string(was) + ", now " +
                    std::to_string(is),
                "ENTRY-6", "leak");
  };
  const Resources &was = before.process, &is = after.process;
  grown("descriptors", was.descriptors, is.descriptors, 0);
  grown("threads", was.threads, is.threads, 0);
  grown("blocks of host memory", before.host_blocks, after.host_blocks, 0);
  // The loader and the allocator of the process keep some bytes for each library. A sanitizer keeps
  // 19 KiB for the largest library of this project.
  const int64_t bytes_per_reload = has_sanitizer_heap() ? 40 << 10 : 2048;
  grown("bytes of memory", was.memory_bytes, is.memory_bytes, bytes_per_reload * reloads);
}

}  // namespace

// Loads the plugin, uses each table, ends the instance and closes the library, a hundred times.
void reload_many_times(const ChildTask& task) {
  constexpr int kWarmUps = 10, kReloads = 100;
  TestHost host(task.option_list());
  Ledger before{};
  for (int i = 0; i < kWarmUps + kReloads; ++i) {
    if (i == kWarmUps) before = take_ledger(host);
    const PluginEntry entry(task.plugin);
    if (entry.get() == nullptr) child_fails("it does not load again");
    RawInstance instance(entry, host);
    if (!instance.problem().empty()) child_fails(instance.problem());
    bp_device* const device = instance.device(task.device);
    const std::string problem =
        device == nullptr ? "the device is gone" : use_device(instance, device, host);
    if (!problem.empty()) child_fails("load " + std::to_string(i + 1) + ": " + problem);
    if (instance.end() != BP_OK) child_fails("shutdown: " + host.take_text(), "ENTRY-6");
  }
  compare(before, take_ledger(host), kReloads);
}

void add_reload_cases(std::vector<Case>& cases) {
  const size_t first = cases.size();
  add_api_cases(
      cases, "load",
      {
          {"failed_calls_leave_no_host_memory", {"ENTRY-6"}, failed_calls_leave_no_host_memory},
          {"instances_end_in_any_order", {"ENTRY-3"}, instances_end_in_any_order},
          {"shutdown_can_run_out_of_time", {"ENTRY-7", "ENTRY-6"}, shutdown_can_run_out_of_time},
          {"a_hundred_reloads_leave_nothing",
           {"ENTRY-6"},
           [](Context& t) { run_in_child(t, "reload_many_times"); }},
      });
  add_api_cases(cases, "probe",
                {{"fork", {"DEVICE-4"}, [](Context& t) { run_in_child(t, "fork_after_probe"); }}});
  add_api_cases(cases, "abi",
                {
                    {"host_table_is_read_to_its_size", {"SIZE-2"}, host_table_is_read_to_its_size},
                    {"reply_is_written_to_its_size", {"SIZE-2"}, reply_is_written_to_its_size},
                });
  for (size_t i = first; i < cases.size(); ++i) cases[i].is_exclusive = cases[i].group != "abi";
}

}  // namespace bp::conformance

// Tests what a child of fork() can do with what its parent has loaded.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>

#include "backplane/blocks.h"
#include "backplane/pinned.h"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

constexpr uint64_t kBytes = 4096;

// Runs `body` in a child, which has 20 seconds, and returns the text that it returned.
std::string in_child(const std::function<std::string()>& body) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);
    const std::string text = body();
    const bool is_written = write(ends[1], text.data(), text.size()) >= 0;
    _exit(is_written ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char bytes[256];
  for (ssize_t n = 0; (n = read(ends[0], bytes, sizeof(bytes))) > 0;) {
    text.append(bytes, static_cast<size_t>(n));
  }
  close(ends[0]);
  int status = -1;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child crashed, or took 20 seconds";
  return text;
}

class Forks : public testing::Test {
 protected:
  Forks() {
    fake.kernels = {&kernel};
    EXPECT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    target = r.target();
    EXPECT_EQ(bp_block_allocate(target, nullptr, kBytes, &block), BP_OK) << bp_error_text();
    EXPECT_EQ(bp_op_prepare(target, nullptr, 0, BP_OP_ADD, &call.args, nullptr, 0, &prepared),
              BP_OK)
        << bp_error_text();
    EXPECT_EQ(bp_pool_create(target, nullptr, &pool), BP_OK) << bp_error_text();
  }
  ~Forks() override {
    EXPECT_EQ(bp_prepared_release(prepared), BP_OK);
    EXPECT_EQ(bp_pool_destroy(pool), BP_OK);
    EXPECT_EQ(bp_block_free(block), BP_OK);
  }

  bp_status launch() const { return bp_op_launch(target, nullptr, 0, BP_OP_ADD, &call.args); }

  // Returns one line for each use that is not refused as one of a lost device.
  std::string uses() {
    std::string found;
    const auto expect_lost = [&](const char* what, bp_status status) {
      if (status != BP_DEVICE_LOST) {
        found += std::string(what) + ": " + bp_status_name(status) + "\n";
      }
    };
    bp_block* other = nullptr;
    void* memory = nullptr;
    bp_pool* other_pool = nullptr;
    expect_lost("launch", launch());
    expect_lost("prepared launch", bp_prepared_launch(prepared, nullptr, &call.args));
    expect_lost("allocate", bp_block_allocate(target, nullptr, kBytes, &other));
    expect_lost("record_stream", bp_block_record_stream(block, target->default_stream));
    expect_lost("pinned", bp_pinned_allocate(target, kBytes, &memory));
    expect_lost("pool", bp_pool_create(target, nullptr, &other_pool));
    expect_lost("pool.trim", bp_pool_trim(pool));
    expect_lost("cache", bp_cache_empty(target));
    const bp_device_ops& devices = *target->devices;
    expect_lost("synchronize", devices.synchronize(devices.self, target->device, UINT64_MAX));
    return found;
  }

  // Returns one line for each end that fails or calls the backend.
  std::string ends() {
    std::string found;
    const auto expect_ok = [&](const char* what, bp_status status) {
      if (status != BP_OK) found += std::string(what) + ": " + bp_status_name(status) + "\n";
    };
    const bp_stream_ops& streams = *target->streams;
    expect_ok("stream.destroy", streams.destroy(streams.self, target->default_stream));
    expect_ok("block", bp_block_free(block));
    expect_ok("prepared", bp_prepared_release(prepared));
    expect_ok("pool", bp_pool_destroy(pool));
    expect_ok("registry", bp_registry_destroy(r.registry));
    const int calls = fake.shutdowns + fake.synchronizes;
    if (calls != 0) found += std::to_string(calls) + " calls of the backend\n";
    return found;
  }

  std::string uses_and_ends() {
    const std::string found = uses();
    return found + ends();
  }

  const bp_kernel kernel = make_kernel("add.fast");
  FakeBackend fake;  // It outlives the registry.
  TestRegistry r;
  AddCall call;
  const bp_target* target = nullptr;
  bp_block* block = nullptr;
  bp_prepared* prepared = nullptr;
  bp_pool* pool = nullptr;
};

TEST_F(Forks, LeaveTheChildNoUse) {
  EXPECT_EQ(in_child([&] { return uses(); }), "");
  EXPECT_EQ(launch(), BP_OK) << "the parent: " << bp_error_text();
}

TEST_F(Forks, TellTheChildWhatToDo) {
  const std::string text = in_child([&] {
    static_cast<void>(launch());
    return std::string(bp_error_text());
  });
  EXPECT_EQ(text,
            "acme.npu:0: the backend of this device was loaded before this process was forked, or "
            "was unloaded; a child of a fork cannot use what its parent has loaded: load the "
            "backend in the child alone, or start workers as new processes");
}

TEST_F(Forks, LetTheChildEndEverything) {
  EXPECT_EQ(in_child([&] { return ends(); }), "");
}

TEST_F(Forks, LetTheChildLoadABackend) {
  EXPECT_EQ(in_child([&]() -> std::string {
              if (fake.load(r.registry) != BP_OK) return bp_error_text();
              if (bp_registry_target_count(r.registry) != 1) return "not one target";
              target = r.target();
              return launch() == BP_OK ? "" : bp_error_text();
            }),
            "");
}

TEST_F(Forks, OfAForkFindTheSame) {
  EXPECT_EQ(in_child([&] { return in_child([&] { return uses_and_ends(); }); }), "");
}

// The locks of the other thread stay locked in a child, whose only thread is the one that forked.
TEST_F(Forks, DoNotHangOnTheLocksOfOtherThreads) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the allocators of sanitizers can hang in a child if another thread was in them";
#endif
  std::atomic<bool> is_over = false;
  std::thread other([&] {
    while (!is_over) {
      bp_block* mine = nullptr;
      bp_prepared* also = nullptr;
      bp_block_allocate(target, nullptr, kBytes, &mine);
      bp_op_prepare(target, nullptr, 0, BP_OP_ADD, &call.args, nullptr, 0, &also);
      bp_block_record_stream(mine, target->default_stream);
      bp_prepared_release(also);
      bp_block_free(mine);
    }
  });
  for (int i = 0; i < 50; ++i) EXPECT_EQ(in_child([&] { return uses_and_ends(); }), "");
  is_over = true;
  other.join();
}

}  // namespace
}  // namespace bp::core

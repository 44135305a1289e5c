// Tests devices, guards, streams, events, generators, and the memory of a device.
#include "backplane/runtime/device.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/memory.hpp"
#include "backplane/runtime/ops.hpp"
#include "backplane/runtime/random.hpp"
#include "runtime/test_device.hpp"

namespace bp {
namespace {

using Floats = std::vector<float>;

constexpr const char* kNoDevice =
    "no device is given, and none is current: name one, or make a bp::DeviceGuard";

// ---- Devices and their guards ------------------------------------------------------------------

TEST(DeviceGuards, CountUntilTheEndOfTheirScope) {
  const Device device = test_device(), second = second_test_device();
  {
    const DeviceGuard outer(device);
    EXPECT_EQ(current_device(), device);
    {
      const DeviceGuard inner(second);
      EXPECT_EQ(current_device(), second);
      EXPECT_EQ(zeros({2}, BP_F32).device(), second);
    }
    EXPECT_EQ(zeros({2}, BP_F32).device(), device);
  }
  EXPECT_EQ(message_of([] { current_device(); }), kNoDevice);
}

TEST(DeviceGuards, EndWithAnExceptionAsAllGuardsDo) {
  const Device device = test_device();
  const DeviceGuard outer(device);
  const Stream side(device);
  const std::string message = message_of([&] {
    const DeviceGuard inner(second_test_device());
    const StreamGuard on_side(side);
    const NoGradGuard no_grad;
    zeros({-1}, BP_F32);
  });
  EXPECT_NE(message.find("has an extent below 0"), std::string::npos) << message;
  EXPECT_EQ(current_device(), device);
  EXPECT_EQ(current_stream(device.target()), nullptr);
  EXPECT_TRUE(is_grad_enabled());
}

TEST(DeviceGuards, CountInTheirOwnThreadAlone) {
  const Device device = test_device();
  const DeviceGuard guard(device);
  const Stream side(device);
  const StreamGuard on_side(side);
  const NoGradGuard no_grad;
  std::string message;
  const bp_stream* stream = side.get();
  bool is_recording = false;
  std::thread([&] {
    message = message_of([] { current_device(); });
    stream = current_stream(device.target());
    is_recording = is_grad_enabled();
  }).join();
  EXPECT_EQ(message, kNoDevice);
  EXPECT_EQ(stream, nullptr);
  EXPECT_TRUE(is_recording);
}

TEST(Devices, AreFoundByEachOfTheirNames) {
  const Device device = test_device();
  const std::string full = device.name();
  const std::string backend = full.substr(0, full.find(':'));
  const std::string index = full.substr(full.find(':'));
  for (const std::string& name : {full, backend, backend.substr(backend.find('.') + 1),
                                  backend.substr(backend.find('.') + 1) + index}) {
    EXPECT_EQ(Device(name), device) << name;
  }
}

TEST(Devices, SayThatALoadedBackendLacksADevice) {
  const std::string full = test_device().name();
  const std::string past = full.substr(0, full.find(':')) + ":1000";
  try {
    const Device device(past);
    FAIL() << device.name();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), BP_NOT_FOUND);
    EXPECT_NE(std::string(error.what()).find("device '" + past + "': "), std::string::npos)
        << error.what();
  }
}

TEST(Devices, RefuseNamesWithoutABackend) {
  for (const char* name : {"", ":", ":0"}) {
    const std::string message = message_of([&] { Device{name}; });
    EXPECT_EQ(message.find("device '" + std::string(name) + "': "), 0u) << message;
  }
}

TEST(Devices, ReportEachLaunch) {
  const Device device = second_test_device();
  const auto launches = [&] {
    const std::string report = device.report();
    const std::string head = std::string(device.name()) + ": ";
    EXPECT_EQ(report.find(head), 0u) << report;
    return std::stoll(report.substr(head.size()));
  };
  const Tensor x = ones({2}, BP_F32, device);
  const int64_t before = launches();
  const Tensor y = x + x;
  EXPECT_EQ(launches(), before + 1);
}

// ---- Generators --------------------------------------------------------------------------------

TEST(Generators, AreOneForEachDevice) {
  const Device device = test_device();
  EXPECT_EQ(&device.generator(), &Device(device.name()).generator());
  EXPECT_NE(&device.generator(), &second_test_device().generator());
}

TEST(Generators, OfAllDevicesTakeTheSeedOfTheProgram) {
  test_device().generator().take(5);
  manual_seed(77);
  for (const Device device : {test_device(), second_test_device()}) {
    EXPECT_EQ(device.generator().state().seed, 77u);
    EXPECT_EQ(device.generator().state().offset, 0u);
  }
}

TEST(Generators, ContinueFromAStateThatWasKept) {
  const DeviceGuard guard(test_device());
  Generator generator(5);
  uniform({7}, BP_F32, current_device(), &generator);
  const Generator::Range state = generator.state();
  const Floats expected = uniform({6}, BP_F32, current_device(), &generator).to_vector<float>();
  uniform({100}, BP_F32, current_device(), &generator);
  generator.set_seed(state.seed, state.offset);
  EXPECT_EQ(uniform({6}, BP_F32, current_device(), &generator).to_vector<float>(), expected);
}

TEST(Generators, AdvanceOnlyForACallThatIsAccepted) {
  const DeviceGuard guard(test_device());
  Generator generator(5);
  generator.take(3);
  const Tensor floats = zeros({40}, BP_F32), integers = zeros({40}, BP_I64);
  EXPECT_NE(message_of([&] { uniform({9}, BP_I64, current_device(), &generator); }), "");
  EXPECT_NE(message_of([&] { dropout(integers, 0.5, &generator); }), "");
  EXPECT_EQ(generator.state().offset, 3u);
  dropout(floats, 0.5, &generator);
  EXPECT_EQ(generator.state().offset, 13u) << "four words in a block";
}

TEST(Generators, TakeNothingBackThatSomebodyTookBehind) {
  Generator generator(5);
  const Generator::Range first = generator.take(2);
  const Generator::Range second = generator.take(3);
  generator.give_back(first, 2);
  EXPECT_EQ(generator.state().offset, 5u);
  generator.give_back(second, 3);
  EXPECT_EQ(generator.state().offset, 2u);
  generator.set_seed(6, 2);
  generator.give_back(first, 2);
  EXPECT_EQ(generator.state().offset, 2u) << "the range is of another seed";
}

TEST(Generators, GiveNoBlockToTwoThreads) {
  constexpr uint64_t kThreads = 4, kTakes = 200, kBlocks = 3;
  Generator generator(1);
  std::vector<std::vector<uint64_t>> taken(kThreads);
  std::vector<std::thread> threads;
  for (std::vector<uint64_t>& own : taken) {
    threads.emplace_back([&generator, &own] {
      for (uint64_t i = 0; i < kTakes; ++i) own.push_back(generator.take(kBlocks).offset);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<uint64_t> offsets;
  for (const std::vector<uint64_t>& own : taken) {
    EXPECT_TRUE(std::ranges::is_sorted(own));
    offsets.insert(own.begin(), own.end());
  }
  EXPECT_EQ(offsets.size(), kThreads * kTakes);
  for (const uint64_t offset : offsets) EXPECT_EQ(offset % kBlocks, 0u);
  EXPECT_EQ(generator.state().offset, kThreads * kTakes * kBlocks);
}

// ---- Streams and events ------------------------------------------------------------------------

class Streams : public testing::Test {
 protected:
  Device device = test_device();
  DeviceGuard guard{device};
  Tensor x = arange(6, BP_F32);
};

TEST_F(Streams, TakeTheirHandleAlong) {
  Stream first(device);
  bp_stream* const handle = first.get();
  Stream second(std::move(first));
  EXPECT_EQ(second.get(), handle);
  EXPECT_EQ(first.get(), nullptr);  // NOLINT(bugprone-use-after-move): this is what is tested.
  EXPECT_EQ(message_of([&] { StreamGuard{first}; }), "StreamGuard: the stream was moved away");
  EXPECT_EQ(current_stream(device.target()), nullptr) << "a guard that failed leaves nothing";
  Stream third(device);
  third = std::move(second);
  EXPECT_EQ(third.get(), handle);
  const StreamGuard on_third(third);
  EXPECT_EQ((x + 1).to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
}

TEST_F(Streams, AreCurrentForTheirOwnDeviceAlone) {
  const Device second = second_test_device();
  const Stream here(device), there(second), inner(device);
  const StreamGuard on_here(here);
  {
    const StreamGuard on_there(there);
    EXPECT_EQ(current_stream(device.target()), here.get());
    EXPECT_EQ(current_stream(second.target()), there.get());
    const StreamGuard on_inner(inner);
    EXPECT_EQ(current_stream(device.target()), inner.get());
    EXPECT_EQ(current_stream(second.target()), there.get());
  }
  EXPECT_EQ(current_stream(device.target()), here.get());
  EXPECT_EQ(current_stream(second.target()), nullptr);
}

TEST_F(Streams, MayEndBeforeTheMemoryThatWasMadeOnThem) {
  const uint64_t before = memory_statistics(device).allocated_bytes;
  Tensor y;
  {
    const Stream side(device);
    const StreamGuard on_side(side);
    y = x + 1;
    side.synchronize();
  }
  EXPECT_EQ(y.to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  y = {};
  EXPECT_EQ(memory_statistics(device).allocated_bytes, before);
  EXPECT_EQ((x + 2).to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
}

TEST_F(Streams, KeepMemoryFromReuseUntilAllThatRecordedItAreDone) {
  constexpr int kRounds = 50;
  constexpr int64_t kCount = 4096;
  Stream maker(device), user(device);
  std::vector<Tensor> sums;
  for (int i = 0; i < kRounds; ++i) {
    Tensor filled;
    {
      const StreamGuard on_maker(maker);
      filled = full({kCount}, i, BP_F32);
    }
    user.wait_for(maker);
    const StreamGuard on_user(user);
    sums.push_back(sum(filled));
    filled.record_stream(user);
  }
  user.synchronize();
  for (int i = 0; i < kRounds; ++i) {
    EXPECT_EQ(sums[static_cast<size_t>(i)].item<float>(), static_cast<float>(i * kCount)) << i;
  }
}

TEST_F(Streams, TakeNoteOfHostMemoryBeforeTheCallEnds) {
  const Stream side(device);
  const StreamGuard on_side(side);
  Floats given(1000, 3);
  const Tensor y = from_host(given, {1000});
  std::ranges::fill(given, -1.0F);
  EXPECT_EQ(y.to_vector<float>(), Floats(1000, 3));
}

TEST_F(Streams, KeepAFailureUntilItIsClearedAndLeaveOthersAlone) {
  const Tensor table = ones({3, 2}, BP_F32);
  const Tensor index = from_host<int64_t>({7}, {1});
  const Stream side(device);
  const bp_stream_ops& streams = *device.target().streams;
  {
    const StreamGuard on_side(side);
    const Tensor rows = embedding(table, index);
    for (const char* when : {"first", "second"}) {
      try {
        side.synchronize();
        ADD_FAILURE() << when;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), BP_DATA_FAILURE) << when;
        EXPECT_EQ(std::string(error.what()).find("stream.synchronize: "), 0u) << error.what();
      }
    }
    EXPECT_THROW(rows.to_vector<float>(), Error);
  }
  EXPECT_EQ((x + 1).to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
  ASSERT_EQ(streams.clear_failure(streams.self, side.get()), BP_OK);
  const StreamGuard on_side(side);
  EXPECT_EQ((x + 2).to_vector<float>(), (Floats{2, 3, 4, 5, 6, 7}));
}

TEST_F(Streams, ServeAThreadEach) {
  constexpr int kThreads = 4;
  std::vector<Floats> results(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      const DeviceGuard here(device);
      const Stream own(device);
      const StreamGuard on_own(own);
      Tensor y = zeros({6}, BP_F32);
      for (int n = 0; n < 50; ++n) y = y + x * i;
      results[static_cast<size_t>(i)] = y.to_vector<float>();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < kThreads; ++i) {
    const auto step = static_cast<float>(50 * i);
    const Floats expected{0, step, 2 * step, 3 * step, 4 * step, 5 * step};
    EXPECT_EQ(results[static_cast<size_t>(i)], expected) << i;
  }
}

TEST_F(Streams, DoNotWaitForAnEventThatWasNeverRecorded) {
  Stream side(device);
  side.wait_for(Event(device));
  side.synchronize();
  EXPECT_TRUE(side.is_idle());
}

TEST_F(Streams, TellTheTimeBetweenEventsThatWereMadeForIt) {
  Event begin(device, BP_EVENT_TIMING), end(device, BP_EVENT_TIMING);
  begin.record();
  const Tensor y = x + 1;
  end.record();
  end.synchronize();
  EXPECT_TRUE(begin.is_done());
  EXPECT_GE(begin.elapsed_ns(end), 0);
  Event plain(device);
  plain.record();
  plain.synchronize();
  const std::string message = message_of([&] { static_cast<void>(begin.elapsed_ns(plain)); });
  EXPECT_EQ(message.find("event.elapsed_ns: "), 0u) << message;
}

// ---- Memory ------------------------------------------------------------------------------------

class Memory : public Streams {
 protected:
  uint64_t allocated() const { return memory_statistics(device).allocated_bytes; }
};

TEST_F(Memory, IsHeldByTheLastViewOfIt) {
  const uint64_t before = allocated();
  Tensor whole = zeros({1024}, BP_F32);
  Tensor view = whole.slice(0, 1000, 1024).unsqueeze(0);
  whole = {};
  EXPECT_GE(allocated(), before + 4096);
  EXPECT_EQ(sum(view).item<float>(), 0);
  view = {};
  EXPECT_EQ(allocated(), before);
}

TEST_F(Memory, IsGivenBackWhereACallFails) {
  const uint64_t before = allocated();
  const Tensor y = zeros({4, 3}, BP_F64);
  const uint64_t held = allocated();
  EXPECT_THROW(x + y, Error);
  EXPECT_THROW(y.expand({4, 4}), Error);
  EXPECT_THROW(matmul(y, y), Error);
  EXPECT_THROW(from_host<float>({1}, {2}), Error);
  EXPECT_EQ(allocated(), held);
  EXPECT_GT(held, before);
}

TEST_F(Memory, SaysThatThereIsNoneLeftAndGoesOn) {
  const uint64_t before = memory_statistics(device).out_of_memory_count;
  try {
    empty({int64_t{1} << 57}, BP_U8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), BP_OUT_OF_MEMORY) << error.what();
  }
  EXPECT_EQ(memory_statistics(device).out_of_memory_count, before + 1);
  EXPECT_EQ((x + 1).to_vector<float>(), (Floats{1, 2, 3, 4, 5, 6}));
}

TEST_F(Memory, GoesBackToTheDeviceOnRequest) {
  zeros({1 << 20}, BP_F32);
  device.synchronize();
  const bp_cache_statistics before = memory_statistics(device);
  EXPECT_GE(before.reserved_bytes, before.allocated_bytes + (4u << 20));
  empty_cache(device);
  const bp_cache_statistics after = memory_statistics(device);
  EXPECT_LE(after.reserved_bytes + (4u << 20), before.reserved_bytes);
  EXPECT_EQ(after.allocated_bytes, before.allocated_bytes);
  EXPECT_EQ(x.to_vector<float>(), (Floats{0, 1, 2, 3, 4, 5})) << "what is in use stays";
}

TEST_F(Memory, IsToldInATable) {
  const bp_cache_statistics s = memory_statistics(device);
  const std::string text = memory_summary(device);
  EXPECT_EQ(text.find(std::string("memory of ") + device.name() + "\n"), 0u) << text;
  EXPECT_EQ(std::ranges::count(text, '\n'), 12) << text;
  for (const uint64_t value : {s.allocated_bytes, s.reserved_peak_bytes, s.backend_free_count}) {
    EXPECT_NE(text.find(" " + std::to_string(value) + "\n"), std::string::npos) << text;
  }
}

TEST_F(Memory, OfOneTensorMayBeDroppedByManyThreads) {
  const uint64_t before = allocated();
  {
    const Tensor shared = zeros({64, 64}, BP_F32);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([shared, i] {
        for (int n = 0; n < 2000; ++n) {
          const Tensor handle = shared;
          const Tensor view = handle.select(0, i).unsqueeze(0);
          const Tensor other = view;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_GT(allocated(), before);
  }
  EXPECT_EQ(allocated(), before);
}

}  // namespace
}  // namespace bp

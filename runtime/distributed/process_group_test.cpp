#include "backplane/runtime/distributed/process_group.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <mutex>

#include "backplane/runtime/runtime.hpp"
#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace bp::distributed {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Floats = std::vector<float>;

Tensor filled(int64_t count, double value) { return full({count}, value, BP_F32); }

// Returns {first, first + 1, ...}.
Tensor counted(int64_t count, double first) { return arange(count, BP_F32) + first; }

Floats after(const Work& work, const Tensor& tensor) {
  work.join();
  return tensor.to_vector<float>();
}

TEST(ProcessGroup, KnowsItsPlace) {
  std::atomic<uint32_t> ranks{0};
  run_ranks(4, [&](ProcessGroup& group) {
    ranks += 1u << group.rank();
    EXPECT_EQ(group.size(), 4u);
    EXPECT_EQ(group.name(), "world");
    EXPECT_STREQ(group.table_name(), "local");
    EXPECT_EQ(group.device(), test_devices()[group.rank()]);
    EXPECT_EQ(group.status(), BP_OK);
    EXPECT_EQ(group.error_text(), "");
  });
  EXPECT_EQ(ranks.load(), 15u);
}

TEST(ProcessGroup, Reduces) {
  run_ranks(4, [](ProcessGroup& group) {
    const double rank = group.rank();
    const struct {
      Reduction reduction;
      float want;
    } rows[] = {{Reduction::kSum, 10},
                {Reduction::kProduct, 24},
                {Reduction::kMin, 1},
                {Reduction::kMax, 4},
                {Reduction::kAverage, 2.5f}};
    for (const auto& row : rows) {
      const Tensor x = filled(3, rank + 1);
      EXPECT_EQ(after(group.all_reduce(x, row.reduction), x), Floats(3, row.want));
    }
    const Tensor x = filled(3, rank + 1);
    const Floats got = after(group.reduce(x, 2), x);
    EXPECT_EQ(got, Floats(3, group.rank() == 2 ? 10.0f : static_cast<float>(rank + 1)));
    const Tensor scaled = filled(1, 1);
    Collective call = Collective::all_reduce(scaled, Reduction::kScaledSum);
    call.scale = 0.5 * rank;
    EXPECT_EQ(after(group.submit(call), scaled), Floats{3});
    const Tensor input = counted(8, rank), part = filled(2, 0);
    const float first = 8.0f * static_cast<float>(group.rank()) + 6;
    EXPECT_EQ(after(group.reduce_scatter(part, input), part), (Floats{first, first + 4}));
  });
}

TEST(ProcessGroup, GathersAndScatters) {
  run_ranks(4, [](ProcessGroup& group) {
    const double rank = group.rank();
    const Tensor all = filled(8, -1);
    const Tensor own = counted(2, 10 * rank);
    const Floats want{0, 1, 10, 11, 20, 21, 30, 31};
    EXPECT_EQ(after(group.all_gather(all, own), all), want);
    const Tensor at_root = group.rank() == 1 ? filled(8, -1) : Tensor();
    group.gather(at_root, own, 1).join();
    if (at_root) {
      EXPECT_EQ(at_root.to_vector<float>(), want);
    }
    const Tensor part = filled(2, -1);
    group.scatter(part, at_root, 1).join();
    EXPECT_EQ(part.to_vector<float>(), own.to_vector<float>());
    const Tensor x = filled(2, rank);
    EXPECT_EQ(after(group.broadcast(x, 3), x), (Floats{3, 3}));
    const Tensor sent = counted(4, 10 * rank), got = filled(4, -1);
    const float r = static_cast<float>(rank);
    EXPECT_EQ(after(group.all_to_all(got, sent), got), (Floats{r, 10 + r, 20 + r, 30 + r}));
  });
}

TEST(ProcessGroup, TakesUnevenParts) {
  run_ranks(2, [](ProcessGroup& group) {
    const bool is_first = group.rank() == 0;
    Collective call = Collective::all_gather(filled(4, -1), filled(is_first ? 1 : 3, group.rank()));
    call.counts = {1, 3};
    EXPECT_EQ(after(group.submit(call), call.receive), (Floats{0, 1, 1, 1}));
    call.counts = {2, 2};
    expect_part(message_of(BP_INVALID_ARGUMENT, [&] { group.submit(call); }),
                "all_gather: the input has " + std::string(is_first ? "1" : "3") +
                    " elements; allowed: 2, the count of this rank");
    Collective swap = Collective::all_to_all(filled(is_first ? 3 : 4, -1),
                                             filled(is_first ? 5 : 2, group.rank()));
    swap.counts = is_first ? std::vector<uint64_t>{2, 3} : std::vector<uint64_t>{1, 1};
    swap.receive_counts = is_first ? std::vector<uint64_t>{2, 1} : std::vector<uint64_t>{3, 1};
    EXPECT_EQ(after(group.submit(swap), swap.receive),
              is_first ? (Floats{0, 0, 1}) : (Floats{0, 0, 0, 1}));
  });
}

TEST(ProcessGroup, SubmitsSeveralCallsAtOnce) {
  run_ranks(2, [](ProcessGroup& group) {
    const uint32_t peer = 1 - group.rank();
    const Tensor sent = filled(2, group.rank()), got = filled(2, -1), sum = filled(2, 1);
    const std::vector<Collective> calls = {Collective::send_to(sent, peer),
                                           Collective::receive_from(got, peer),
                                           Collective::all_reduce(sum)};
    group.submit(calls).join();
    EXPECT_EQ(got.to_vector<float>(), Floats(2, static_cast<float>(peer)));
    EXPECT_EQ(sum.to_vector<float>(), Floats(2, 2));
    if (group.rank() == 0) {
      group.send(sent, 1).wait();
    } else {
      EXPECT_EQ(after(group.receive(got, 0), got), Floats(2, 0));
    }
  });
}

TEST(ProcessGroup, FollowsTheStreamOfTheCaller) {
  run_ranks(2, [](ProcessGroup& group) {
    const Stream own(group.device());
    const StreamGuard guard(own);
    for (int i = 0; i < 20; ++i) {
      Tensor x = filled(1000, 1);
      for (int k = 0; k < 5; ++k) x = x + 1;
      const Work work = group.all_reduce(x);
      work.join();
      EXPECT_EQ((x + 1).to_vector<float>(), Floats(1000, 13));
    }
  });
}

TEST(ProcessGroup, KeepsTensorsThatTheCallerDrops) {
  run_ranks(2, [](ProcessGroup& group) {
    std::vector<Tensor> sums;
    for (int i = 0; i < 50; ++i) {
      const Tensor all = filled(2000, -1);
      group.all_gather(all, filled(1000, i));  // The input is dropped at once.
      filled(1000, -7);                        // Would take its memory.
      sums.push_back(all);
    }
    group.barrier();
    group.all_reduce(filled(1, 0)).join();
    for (size_t i = 0; i < sums.size(); ++i) {
      EXPECT_EQ(sums[i].to_vector<float>(), Floats(2000, static_cast<float>(i)));
    }
  });
}

TEST(ProcessGroup, Splits) {
  run_ranks(4, [](ProcessGroup& group) {
    // Ranks 3, 1 and 0 with the keys 0, 1 and 2; rank 2 stays out.
    const std::vector<uint32_t> keys{2, 1, 9, 0};
    const bool is_in = group.rank() != 2;
    const auto part =
        group.split(is_in ? std::optional<uint32_t>(5) : std::nullopt, keys[group.rank()], "part");
    ASSERT_EQ(part.has_value(), is_in);
    if (!part) return;
    EXPECT_EQ(part->rank(), keys[group.rank()]);
    EXPECT_EQ(part->size(), 3u);
    EXPECT_EQ(part->name(), "part");
    const Tensor all = filled(3, -1);
    EXPECT_EQ(after(part->all_gather(all, filled(1, group.rank())), all), (Floats{3, 1, 0}));
    const auto half = part->split(part->rank() / 2, 0, "half");
    EXPECT_EQ(half->size(), part->rank() == 2 ? 1u : 2u);
    const Tensor x = filled(1, 1);
    EXPECT_EQ(after(half->all_reduce(x), x), Floats{static_cast<float>(half->size())});
  });
}

TEST(ProcessGroup, GoesOnWithoutARankThatIsGone) {
  run_ranks(4, [](ProcessGroup& group) {
    if (group.rank() == 1) return;
    const std::vector<uint32_t> gone{1};
    const ProcessGroup rest = group.shrink(gone, "rest");
    EXPECT_EQ(rest.size(), 3u);
    EXPECT_EQ(rest.rank(), group.rank() == 0 ? 0u : group.rank() - 1);
    EXPECT_EQ(group.status(), BP_ABORTED);
    const Tensor x = filled(1, static_cast<float>(group.rank()));
    EXPECT_EQ(after(rest.all_reduce(x), x), Floats{0 + 2 + 3});
    const auto half = rest.split(rest.rank() / 2, 0, "half");
    EXPECT_EQ(half->size(), rest.rank() == 2 ? 1u : 2u);
    const std::vector<uint32_t> own{rest.rank()}, none;
    expect_part(message_of(BP_INVALID_ARGUMENT, [&] { rest.shrink(own, "no"); }), "other ranks");
    expect_part(message_of(BP_INVALID_ARGUMENT, [&] { rest.shrink(none, "no"); }), "at least one");
  });
}

TEST(ProcessGroup, TellsAnObserverOfCallsAndWaits) {
  std::mutex mutex;
  std::vector<std::string> seen;
  const auto note = [&](const std::string& text) {
    const std::lock_guard lock(mutex);
    seen.push_back(text);
  };
  GroupOptions options;
  options.observer = std::make_shared<CallObserver>(CallObserver{
      .on_group = {},
      .on_submit =
          [&](const ProcessGroup& group, uint64_t number, std::span<const Collective> calls) {
            if (group.rank() != 0) return;
            note(group.name() + " submits " + std::to_string(number) + ": " +
                 std::to_string(calls[0].send.size_bytes()));
          },
      .on_wait =
          [&](const std::string& group, uint64_t number, bool has_ended) {
            if (group == "rank 0")
              note("waits " + std::to_string(number) + (has_ended ? "." : "?"));
          }});
  run_ranks(
      2,
      [](ProcessGroup& group) {
        const auto part = group.split(group.rank(), 0, "rank " + std::to_string(group.rank()));
        group.all_reduce(filled(3, 1)).join();
        if (group.rank() != 0) return;
        EXPECT_EQ(part->rank(), 0u);
        part->all_reduce(filled(2, 1)).wait();
        part->all_reduce(filled(4, 1)).join();
      },
      options);
  EXPECT_EQ(seen,
            (std::vector<std::string>{"world submits 1: 12", "rank 0 submits 1: 8", "waits 1?",
                                      "waits 1.", "rank 0 submits 2: 16", "waits 2?", "waits 2."}));
}

TEST(ProcessGroup, TellsAnObserverWhoTheMembersOfAGroupAre) {
  using Members = std::vector<uint32_t>;
  std::mutex mutex;
  std::map<std::string, Members> seen;  // By the name of the group and the rank in it.
  GroupOptions options;
  options.observer = std::make_shared<CallObserver>(CallObserver{
      .on_group =
          [&](const ProcessGroup& group, std::span<const uint32_t> members) {
            const std::lock_guard lock(mutex);
            seen[group.name() + std::to_string(group.rank())] = {members.begin(), members.end()};
          },
      .on_submit = {},
      .on_wait = {}});
  run_ranks(
      4,
      [](ProcessGroup& group) {
        const uint32_t rank = group.rank(), parity = rank % 2;
        // The keys turn the order round.
        const auto part = group.split(parity, 4 - rank, parity == 0 ? "even" : "odd");
        if (parity == 0) part->split(part->rank(), 0, "own");
        const std::vector<uint32_t> gone{1};
        if (parity == 1 && part->rank() == 0) part->shrink(gone, "left");
      },
      options);
  const Members all{0, 1, 2, 3};
  EXPECT_EQ(seen["world0"], all);
  EXPECT_EQ(seen["world3"], all);
  EXPECT_EQ(seen["even0"], (Members{2, 0}));
  EXPECT_EQ(seen["even1"], (Members{2, 0}));
  EXPECT_EQ(seen["odd0"], (Members{3, 1}));
  EXPECT_EQ(seen["left0"], Members{3});
  EXPECT_EQ(seen.size(), 4u + 4 + 1 + 1) << "two groups are named 'own', of one rank each";
}

TEST(ProcessGroup, TellsWhichLocalRankIsMissingInASplit) {
  const GroupOptions options{.timeout = milliseconds(200)};
  auto groups = ProcessGroup::make_local({test_devices().data(), 2}, options);
  const auto messages = messages_of_ranks(1, [&](uint32_t) {
    const DeviceGuard guard(test_devices()[0]);
    groups[0].split(0, 0, "part");
  });
  expect_part(messages[0], "rank 0 of 2 of the group 'world'");
  expect_part(messages[0], "rank 1");
}

TEST(ProcessGroup, RefusesCallsThatDoNotFit) {
  run_ranks(2, [](ProcessGroup& group) {
    const auto refused = [&](const Collective& call, const std::string& part) {
      expect_part(message_of(BP_INVALID_ARGUMENT, [&] { group.submit(call); }), part);
    };
    const Tensor x = filled(4, 1);
    refused(Collective::all_reduce(full({2, 3}, 1, BP_F32).transpose()), "a contiguous tensor");
    refused(Collective::all_reduce(x.to(test_devices()[1 - group.rank()])), "the device of the gr");
    refused(Collective::all_gather(x, x),
            "all_gather: the output has 4 elements; allowed: 8, 4 for each of 2 ranks");
    refused(Collective::broadcast(x, 2), "is rank 2; allowed: below the size of the group, 2");
    refused(Collective::all_gather(filled(8, 0).to(BP_F64), x), "the input is f32 and the output");
    refused(Collective::all_reduce(Tensor()), "no tensor is given");
    const Tensor parameter = filled(1, 1).set_requires_grad();
    refused(Collective::all_reduce(parameter), "writes in place are not recorded");
    const Tensor sum = filled(1, 1);
    EXPECT_EQ(after(group.all_reduce(sum), sum), Floats{2}) << "the group still works";
    EXPECT_TRUE(group.supports(BP_COLLECTIVE_ALL_REDUCE, BP_F32));
    EXPECT_FALSE(group.supports(BP_COLLECTIVE_ALL_REDUCE, BP_I32, Reduction::kAverage));
  });
}

TEST(ProcessGroup, EndsWithATimeoutIfARankDoesNotCome) {
  run_ranks(2,
            [](ProcessGroup& group) {
              if (group.rank() == 1) return;
              const Work work = group.all_reduce(filled(1, 1));
              expect_part(message_of(BP_TIMEOUT, [&] { work.wait(milliseconds(1)); }),
                          "the work has not ended within 0.001 s; it goes on");
              EXPECT_FALSE(work.is_done());
              EXPECT_EQ(work.status(), BP_OK);
              for (int i = 0; i < 2; ++i) {
                const std::string text = message_of(BP_TIMEOUT, [&] { work.wait(); });
                expect_part(text,
                            "all_reduce (submission 1) of rank 0 of 2 of the group 'world': ");
                expect_part(text, "rank 1");
              }
              EXPECT_EQ(work.status(), BP_TIMEOUT);
              expect_part(work.error_text(), "rank 1");
              EXPECT_NE(group.status(), BP_OK);
              EXPECT_NE(group.error_text(), "");
              EXPECT_THROW(group.all_reduce(filled(1, 1)), Error);
            },
            {.timeout = milliseconds(300)});
}

TEST(ProcessGroup, AbortEndsWorkThatWaits) {
  auto groups = ProcessGroup::make_local({test_devices().data(), 2}, {.timeout = seconds(60)});
  std::atomic<bool> is_waiting{false};
  const auto messages = messages_of_ranks(2, [&](uint32_t rank) {
    const DeviceGuard guard(test_devices()[rank]);
    if (rank == 0) {
      const Work work = groups[0].all_reduce(filled(1, 1));
      is_waiting = true;
      work.wait();
    } else {
      while (!is_waiting) std::this_thread::yield();
      groups[1].abort();
    }
  });
  expect_part(messages[0], "rank 1 aborted the group");
  EXPECT_EQ(messages[1], "");
  EXPECT_EQ(groups[0].status(), BP_ABORTED);
  run_ranks(2, [](ProcessGroup& group) { group.barrier(); });  // A new group works.
}

TEST(ProcessGroup, RefusesWhatTheTableDoesNotHave) {
  const std::span<const Device> two(test_devices().data(), 2);
  expect_part(
      message_of(BP_NOT_FOUND, [&] { ProcessGroup::make_local(two, {.table_name = "no_such"}); }),
      "no_such");
  expect_part(message_of(BP_NOT_FOUND,
                         [&] {
                           ProcessGroup::make_local(two, {.options = {{"rings", "4"}}});
                         }),
              "group 'world': ");
  EXPECT_THROW(ProcessGroup::make_local({}, {}), Error);
  EXPECT_THROW(ProcessGroup(two[0], 0, 2, nullptr), Error);
}

}  // namespace
}  // namespace bp::distributed

// Tests what a backend gets from the host: memory, options, a log and a slot for errors.
#include "registry/plugins/host_services.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "backplane/ops.h"
#include "registry/boundary/error_slot.hpp"

namespace bp::core {
namespace {

struct Line {
  bp_log_level level;
  std::string source, message;
};

class Services : public testing::Test {
 protected:
  static void take(void* self, bp_log_level level, const char* source, const char* message) {
    static_cast<std::vector<Line>*>(self)->push_back({level, source, message});
  }

  std::vector<Line> lines;
  HostServices services{{take, &lines}, {{"threads", "4"}, {"level", ""}}};
  const bp_host& host = *services.table();
};

// ---- Memory -------------------------------------------------------------------------------------

TEST_F(Services, GiveMemoryOfTheAlignmentThatIsAskedFor) {
  for (uint64_t alignment = 1; alignment <= 1 << 16; alignment *= 2) {
    void* memory = nullptr;
    ASSERT_EQ(host.allocate(host.self, 100, alignment, &memory), BP_OK) << alignment;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % alignment, 0u) << alignment;
    std::memset(memory, 1, 100);
    EXPECT_EQ(host.deallocate(host.self, memory, 100), BP_OK);
  }
}

TEST_F(Services, RefuseRequestsForMemoryThatCannotBe) {
  void* const before = this;
  void* memory = before;
  for (const uint64_t alignment : {0u, 3u, 24u}) {
    EXPECT_EQ(host.allocate(host.self, 8, alignment, &memory), BP_INVALID_ARGUMENT) << alignment;
    EXPECT_NE(take_error().find("alignment_bytes is no power of two"), std::string::npos);
  }
  EXPECT_EQ(host.allocate(host.self, 8, 8, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(host.allocate(host.self, uint64_t{1} << 62, 8, &memory), BP_OUT_OF_MEMORY);
  EXPECT_EQ(take_error(),
            "allocate: the host has not so much memory left; free host memory or ask for less");
  EXPECT_EQ(memory, before) << "a refusal writes nothing";
  EXPECT_EQ(services.allocation_count(), 0u);
  EXPECT_EQ(services.allocated_bytes(), 0u);
}

TEST_F(Services, CountMemoryUntilItIsGivenBack) {
  void *first = nullptr, *none = nullptr;
  ASSERT_EQ(host.allocate(host.self, 100, 8, &first), BP_OK);
  ASSERT_EQ(host.allocate(host.self, 0, 8, &none), BP_OK);
  EXPECT_NE(none, nullptr);
  EXPECT_EQ(services.allocation_count(), 2u);
  EXPECT_EQ(services.allocated_bytes(), 100u);
  EXPECT_EQ(host.deallocate(host.self, nullptr, 100), BP_OK) << "there is nothing to do";
  EXPECT_EQ(services.allocation_count(), 2u);
  EXPECT_EQ(host.deallocate(host.self, first, 100), BP_OK);
  EXPECT_EQ(host.deallocate(host.self, none, 0), BP_OK);
  EXPECT_EQ(services.allocation_count(), 0u);
  EXPECT_EQ(services.allocated_bytes(), 0u);
}

// ---- Options ------------------------------------------------------------------------------------

TEST_F(Services, TellWhichOptionsNobodyReadYet) {
  EXPECT_EQ(services.unread_options(), "threads level ");
  const char* value = "before";
  EXPECT_EQ(host.get_option(host.self, "thread", &value), BP_NOT_FOUND);
  EXPECT_STREQ(value, "before");
  ASSERT_EQ(host.get_option(host.self, "level", &value), BP_OK);
  EXPECT_STREQ(value, "") << "an empty option is one";
  EXPECT_EQ(services.unread_options(), "threads ");
  ASSERT_EQ(host.get_option(host.self, "threads", &value), BP_OK);
  EXPECT_STREQ(value, "4");
  EXPECT_EQ(services.unread_options(), "");
  EXPECT_EQ(host.get_option(host.self, nullptr, &value), BP_INVALID_ARGUMENT);
  EXPECT_EQ(host.get_option(host.self, "threads", nullptr), BP_INVALID_ARGUMENT);
}

// ---- Ops ----------------------------------------------------------------------------------------

// [OP-1]
TEST_F(Services, LendDescriptionsOfOps) {
  uint32_t op = 0;
  ASSERT_EQ(host.op_find(host.self, "softmax", &op), BP_OK);
  EXPECT_EQ(op, uint32_t{BP_OP_SOFTMAX});
  const bp_op_desc* desc = nullptr;
  ASSERT_EQ(host.op_describe(host.self, op, &desc), BP_OK);
  EXPECT_STREQ(desc->name, "softmax");
  EXPECT_EQ(host.op_find(host.self, "softmux", &op), BP_NOT_FOUND);
  EXPECT_EQ(op, uint32_t{BP_OP_SOFTMAX});
  EXPECT_EQ(host.op_find(host.self, nullptr, &op), BP_INVALID_ARGUMENT);
  EXPECT_EQ(host.op_describe(host.self, 999, &desc), BP_NOT_FOUND);
  EXPECT_EQ(host.op_describe(host.self, op, nullptr), BP_INVALID_ARGUMENT);
}

// ---- Texts --------------------------------------------------------------------------------------

TEST_F(Services, KeepTheLastLineThatMatters) {
  services.set_source("acme.npu");
  EXPECT_EQ(services.last_line(), "");
  EXPECT_EQ(host.log_line(host.self, BP_LOG_INFO, "ready"), BP_OK);
  EXPECT_EQ(host.log_line(host.self, BP_LOG_DEBUG, "detail"), BP_OK);
  EXPECT_EQ(services.last_line(), "ready");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].level, bp_log_level{BP_LOG_DEBUG});
  EXPECT_EQ(lines[1].source, "acme.npu");
  EXPECT_EQ(lines[1].message, "detail");
  EXPECT_EQ(host.log_line(host.self, BP_LOG_ERROR, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(lines.size(), 2u);
}

TEST_F(Services, LetNoLineOfABackendForgeOneOfTheHost) {
  host.log_line(host.self, BP_LOG_WARNING, "one\ntwo \x1b[2J \xff");
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0].message, "one\\ntwo \\x1b[2J \xEF\xBF\xBD");
  EXPECT_EQ(services.last_line(), lines[0].message);
  EXPECT_EQ(host.set_error(host.self, BP_INTERNAL, "one\ntwo\r"), BP_INTERNAL);
  EXPECT_EQ(take_error(), "one\n    two\\r");
  host.log_line(host.self, BP_LOG_WARNING, std::string(100'000, 'x').c_str());
  EXPECT_LT(lines[1].message.size(), kMaxPluginText + 100);
}

TEST_F(Services, TakeAFailureWithoutWords) {
  EXPECT_EQ(host.set_error(host.self, BP_INTERNAL, "before"), BP_INTERNAL);
  EXPECT_EQ(host.set_error(host.self, BP_ABORTED, nullptr), BP_ABORTED);
  EXPECT_EQ(take_error().find("before"), std::string::npos) << "those of another failure";
}

TEST_F(Services, AreNeededByNobodyWhoHasNoLog) {
  HostServices silent({nullptr, nullptr}, {});
  const bp_host& table = *silent.table();
  EXPECT_EQ(table.log_line(table.self, BP_LOG_ERROR, "words"), BP_OK);
  EXPECT_EQ(silent.last_line(), "words");
}

// ---- Threads ------------------------------------------------------------------------------------

TEST_F(Services, KeepTheErrorsOfThreadsApartAndTheirMemoryInOneCount) {
  HostServices silent({nullptr, nullptr}, {{"key", "value"}});
  const bp_host& table = *silent.table();
  constexpr int kThreads = 4, kRounds = 500;
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&table, &failures = wrong[static_cast<size_t>(i)], i] {
      const std::string words = "thread " + std::to_string(i);
      for (int n = 0; n < kRounds; ++n) {
        void* memory = nullptr;
        const char* value = nullptr;
        failures += table.allocate(table.self, 64, 64, &memory) == BP_OK ? 0 : 1;
        table.set_error(table.self, BP_INTERNAL, words.c_str());
        table.log_line(table.self, BP_LOG_INFO, words.c_str());
        failures += table.get_option(table.self, "key", &value) == BP_OK ? 0 : 1;
        failures += take_error() == words ? 0 : 1;
        table.deallocate(table.self, memory, 64);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(kThreads));
  EXPECT_EQ(silent.allocation_count(), 0u);
  EXPECT_EQ(silent.allocated_bytes(), 0u);
  EXPECT_EQ(silent.last_line().find("thread "), 0u);
}

// ---- Options from the environment ---------------------------------------------------------------

TEST(EnvironmentOptions, AreThoseOfTheBackendByEitherOfItsNames) {
  BackendOptions options{{"level", "program"}};
  ASSERT_EQ(add_environment_options("npu.threads=4,acme.npu.cache=a=b,cpu.threads=9,npux.no=1,"
                                    "npu.level=2,,npu.empty=,npu.threads=5",
                                    "acme.npu", options),
            BP_OK)
      << take_error();
  const BackendOptions expected{
      {"level", "program"}, {"threads", "4"}, {"cache", "a=b"}, {"empty", ""}};
  EXPECT_EQ(options, expected) << "what the program gave, and what stands first, counts";
}

TEST(EnvironmentOptions, AreRefusedAsTheyStandWhoeverIsMeant) {
  for (const char* text : {"threads=4", "cpu.threads", ".threads=4", "cpu.=4", "=", "cpu=4.5"}) {
    BackendOptions options;
    EXPECT_EQ(add_environment_options(std::string("npu.level=1,") + text, "acme.npu", options),
              BP_INVALID_ARGUMENT)
        << text;
    EXPECT_EQ(take_error(), "BACKPLANE_OPTIONS: '" + std::string(text) +
                                "' is not NAME.KEY=VALUE, such as cpu.threads=4");
  }
}

}  // namespace
}  // namespace bp::core

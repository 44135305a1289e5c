// A parameter server whose ranks are processes, one of which is killed. The process of the test
// loads no plugin, since its children are forks of it.
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <sstream>

#include "runtime/distributed/test_parameter_server.hpp"
#include "runtime/distributed/test_processes.hpp"

namespace bp::distributed {
namespace {

std::string text_in(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// Runs a process for each rank, which writes what it threw to a file. Returns the texts. The server
// on the rank `dies` kills itself in the second step of a worker.
std::vector<std::string> run(uint32_t ranks, uint32_t servers, Duration timeout,
                             const std::function<void(ParameterServer&)>& body,
                             uint32_t dies = UINT32_MAX) {
  const ScratchFolder scratch;
  run_processes(ranks, [&](uint32_t rank) {
    const auto store = std::make_shared<FileStore>(scratch.file("store"));
    const DeviceGuard guard(other_test_device());
    std::string text = "(nothing was thrown)";
    const auto before_step = [&](const PushedStep& push) {
      if (rank == dies && push.step == 2) raise(SIGKILL);
    };
    try {
      const ProcessGroup group(current_device(), rank, ranks, store, {.timeout = timeout});
      ParameterServer server(small_model(), group,
                             {.servers = servers,
                              .staleness = 2,
                              .make_optimizer = make_sgd,
                              .before_step = before_step});
      body(server);
    } catch (const Error& e) {
      text = e.what();
    }
    std::ofstream(scratch.file(std::to_string(rank))) << text;
    return 0;
  });
  std::vector<std::string> texts;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    texts.push_back(text_in(scratch.file(std::to_string(rank))));
  }
  return texts;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ParameterServerProcesses, Train) {
  const auto texts = run(3, 1, std::chrono::seconds(60), [](ParameterServer& server) {
    train(server, {3, 4});
  });
  for (const std::string& text : texts) EXPECT_EQ(text, "(nothing was thrown)");
}

// The timeout is far longer than a test may take, so the connection tells of the death.
TEST(ParameterServerProcesses, NameAWorkerThatWasKilled) {
  for (const uint32_t servers : {1u, 2u}) {
    const auto texts =
        run(2 + servers, servers, std::chrono::minutes(30), [](ParameterServer& server) {
          if (server.group().rank() != 1) return train(server, {100, 100});
          for (uint32_t step = 0; step < 2; ++step) take_step(server, 1, step);
          raise(SIGKILL);
        });
    EXPECT_EQ(texts[1], "");
    for (uint32_t rank = 2; rank < 2 + servers; ++rank) {
      expect_part(texts[rank], "waited for step 3 of the worker on rank 1: ");
    }
    expect_part(texts[0], "waited for step 3 of the worker on rank 1: ");
  }
}

TEST(ParameterServerProcesses, NameAServerThatWasKilled) {
  const auto texts = run(
      4, 2, std::chrono::minutes(30),
      [](ParameterServer& server) {
        train(server, {100, 100});
      },
      3);
  for (const uint32_t rank : {0u, 1u, 2u}) expect_part(texts[rank], " the server on rank 3: ");
}

}  // namespace
}  // namespace bp::distributed

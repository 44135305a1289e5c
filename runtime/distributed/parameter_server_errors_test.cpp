#include <gtest/gtest.h>

#include <optional>
#include <stdexcept>

#include "runtime/distributed/parameter_link.hpp"
#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_parameter_server.hpp"

namespace bp::distributed {
namespace {

using std::chrono::milliseconds;

constexpr auto kShort = milliseconds(1200);

std::string made_with(const std::shared_ptr<nn::Module>& model, const ProcessGroup& group,
                      const ParameterServerOptions& options) {
  return thrown_by([&] { const ParameterServer server(model, group, options); });
}

TEST(ParameterServerErrors, AllRanksNameWrongArguments) {
  run_ranks(3, [](ProcessGroup& group) {
    const auto model = small_model();
    const bool is_last = group.rank() == 2;
    EXPECT_EQ(made_with(group.rank() == 1 ? nullptr : model, group, {.make_optimizer = make_sgd}),
              "ParameterServer: the module is a null pointer; allowed: a module");
    for (const uint32_t servers : {0u, 3u}) {
      EXPECT_EQ(made_with(model, group, {.servers = servers, .make_optimizer = make_sgd}),
                "ParameterServer: servers is " + std::to_string(servers) +
                    ", of 3 ranks; allowed: 1 to 2");
    }
    EXPECT_EQ(made_with(model, group, {}),
              "ParameterServer: rank 2 serves and has no make_optimizer; allowed: a function that "
              "makes its optimizer");
    const auto layer = std::make_shared<nn::Linear>(2, 1, false);
    EXPECT_EQ(made_with(layer, group, {.servers = 2, .make_optimizer = make_sgd}),
              "ParameterServer: servers is 2, for 1 parameters with a gradient; allowed: at most "
              "one server for each parameter");
    EXPECT_EQ(
        made_with(model, group, {.staleness = is_last ? 2u : 1u, .make_optimizer = make_sgd}),
        "ParameterServer: the ranks have different options: option 1 is staleness 2 on rank 2 "
        "and staleness 1 on rank 0");
    const auto other = std::make_shared<nn::Linear>(3, is_last ? 5 : 4);
    EXPECT_EQ(
        made_with(other, group, {.make_optimizer = make_sgd}),
        "ParameterServer: the ranks have different models: parameter 0 is 'weight' f32 (5, 3) "
        "on rank 2 and 'weight' f32 (4, 3) on rank 0");
    const auto fails = [](const std::vector<Tensor>& parameters) -> std::shared_ptr<Optimizer> {
      return std::make_shared<Sgd>(parameters, SgdOptions{.lr = -1});
    };
    EXPECT_EQ(made_with(model, group, {.make_optimizer = fails}),
              "ParameterServer: rank 2: make_optimizer failed: Sgd: lr is -1; allowed: from 0");
    const auto gives_none = [](const std::vector<Tensor>&) { return std::shared_ptr<Optimizer>(); };
    EXPECT_EQ(made_with(model, group, {.make_optimizer = gives_none}),
              "ParameterServer: rank 2: make_optimizer gave none; allowed: an optimizer");
  });
}

TEST(ParameterServerErrors, NamesCallsOutOfTurn) {
  run_ranks(2, [](ProcessGroup& group) {
    ParameterServer server(small_model(), group, {.make_optimizer = make_sgd});
    const std::string who =
        "ParameterServer: rank " + std::to_string(group.rank()) + " of 2 of the group 'world': ";
    if (server.is_server()) {
      EXPECT_EQ(thrown_by([&] { server.push(); }),
                who + "push() is called on a server; allowed: on a worker");
      EXPECT_EQ(thrown_by([&] { server.pull(); }),
                who + "pull() is called on a server; allowed: on a worker");
      return server.serve();
    }
    EXPECT_EQ(thrown_by([&] { server.serve(); }),
              who + "serve() is called on a worker; allowed: on a server");
    EXPECT_EQ(thrown_by([&] { server.push(); }),
              who + "push(): no parameter has a gradient; allowed: behind backward()");
    EXPECT_EQ(thrown_by([&] { server.pull(); }),
              who + "pull() has nothing to take; allowed: one pull() behind each push()");
    loss_of(server.module()(batch_of(0, 0))).backward();
    server.push();
    EXPECT_EQ(thrown_by([&] { server.push(); }),
              who +
                  "push() is called again before the parameters of the last push were taken; "
                  "allowed: pull() first");
    server.finish();  // Pulls first.
    EXPECT_EQ(thrown_by([&] { server.finish(); }),
              who + "finish() is called again; allowed: once behind the last push()");
  });
}

// Runs the ranks with a short timeout, and returns what each of them threw.
std::vector<std::string> messages_with(uint32_t ranks, const ParameterServerOptions& options,
                                       const std::function<void(ParameterServer&)>& body) {
  const std::vector<Device>& devices = test_devices();
  std::vector<ProcessGroup> groups =
      ProcessGroup::make_local({devices.data(), ranks}, {.timeout = kShort});
  std::vector<std::optional<ParameterServer>> servers(ranks);
  std::vector<std::string> messages = messages_of_ranks(ranks, [&](uint32_t rank) {
    const DeviceGuard guard(devices[rank]);
    servers[rank].emplace(small_model(), groups[rank], options);
    body(*servers[rank]);
  });
  return messages;
}

void train_until(ParameterServer& server, uint32_t steps) {
  if (server.is_server()) return server.serve();
  for (uint32_t step = 0; step < steps; ++step) take_step(server, server.group().rank(), step);
  server.finish();
}

// Worker 1 stops behind its first step, and stays.
TEST(ParameterServerErrors, NamesAWorkerThatHangs) {
  for (const uint32_t servers : {1u, 2u}) {
    const auto messages =
        messages_with(2 + servers, {.servers = servers, .staleness = 1, .make_optimizer = make_sgd},
                      [](ParameterServer& server) {
                        if (server.group().rank() != 1) return train_until(server, 9);
                        take_step(server, 1, 0);
                      });
    EXPECT_EQ(messages[1], "");
    const std::string ranks = std::to_string(2 + servers);
    for (uint32_t rank = 2; rank < 2 + servers; ++rank) {
      expect_part(messages[rank], "ParameterServer: rank ");
      expect_part(messages[rank], " waited for step 2 of the worker on rank 1: receive");
    }
    expect_part(messages[0], "ParameterServer: rank 0 of " + ranks +
                                 " of the group 'world' waited for the parameters behind step 3 "
                                 "from the server on rank ");
    expect_part(messages[0], " waited for step 2 of the worker on rank 1: receive");
  }
}

TEST(ParameterServerErrors, NamesAServerThatHangs) {
  const auto messages = messages_with(4, {.servers = 2, .staleness = 1, .make_optimizer = make_sgd},
                                      [](ParameterServer& server) {
                                        if (server.group().rank() == 3) return;
                                        train_until(server, 9);
                                      });
  EXPECT_EQ(messages[3], "");
  for (uint32_t rank = 0; rank < 2; ++rank) {
    expect_part(messages[rank], "ParameterServer: rank " + std::to_string(rank) +
                                    " of 4 of the group 'world' waited for the parameters behind "
                                    "step 1 from the server on rank 3: ");
  }
  expect_part(messages[2],
              "ParameterServer: rank 2 of 4 of the group 'world' waited for step 2 of "
              "the worker on rank ");
  expect_part(messages[2], " from the server on rank 3: ");
}

// The message comes at once: the timeout of the group is far longer than a test may take.
TEST(ParameterServerErrors, NamesAWorkerThatEndsEarly) {
  const std::vector<Device>& devices = test_devices();
  std::vector<ProcessGroup> groups = ProcessGroup::make_local({devices.data(), 3});
  const auto messages = messages_of_ranks(3, [&](uint32_t rank) {
    const DeviceGuard guard(devices[rank]);
    ParameterServer server(small_model(), groups[rank],
                           {.staleness = 1, .make_optimizer = make_sgd});
    if (rank != 1) return train_until(server, 9);
    take_step(server, 1, 0);
    throw std::runtime_error("the host fails");
  });
  EXPECT_EQ(messages[1], "the host fails");
  const std::string text =
      "ParameterServer: rank 2 of 3 of the group 'world' waited for step 2 of the worker on rank "
      "1: "
      "ParameterServer: rank 1 of 3 of the group 'world': the worker ended before finish()";
  EXPECT_EQ(messages[2], text);
  expect_part(messages[0], ": " + text);
}

TEST(ParameterServerErrors, TellsWorkersWhatFailedOnAServer) {
  const auto before_step = [](const PushedStep& push) {
    if (push.step == 3) throw std::runtime_error("no third step");
  };
  const auto messages = messages_with(
      4, {.servers = 2, .staleness = 1, .make_optimizer = make_sgd, .before_step = before_step},
      [](ParameterServer& server) { train_until(server, 9); });
  for (const std::string& message : messages) expect_part(message, "no third step");
  expect_part(messages[0], " from the server on rank ");
}

TEST(ParameterServerErrors, CannotGoOnBehindAFailure) {
  messages_with(2, {.make_optimizer = make_sgd}, [](ParameterServer& server) {
    if (!server.is_server()) return;
    const std::string first = thrown_by([&] { server.serve(); });
    expect_part(first, " waited for step 1 of the worker on rank 0");
    EXPECT_EQ(
        thrown_by([&] { server.serve(); }),
        "ParameterServer: rank 1 of 2 of the group 'world': serve() behind a failure: " + first);
  });
  messages_with(2, {.make_optimizer = make_sgd}, [](ParameterServer& server) {
    if (server.is_server()) return;
    const std::string first = thrown_by([&] { take_step(server, 0, 0); });
    expect_part(first, " waited for the parameters behind step 1 from the server on rank 1");
    EXPECT_EQ(
        thrown_by([&] { server.push(); }),
        "ParameterServer: rank 0 of 2 of the group 'world': push() behind a failure: " + first);
  });
}

TEST(ParameterLink, KeepsMessagesAsTheyAre) {
  const LinkMessage message{.kind = LinkMessage::Kind::kFailure,
                            .step = 7,
                            .has_gradient = {true, false, true},
                            .code = BP_TIMEOUT,
                            .text = "a text of some length"};
  const std::vector<int64_t> words = encode(message, 3);
  ASSERT_EQ(words.size(), message_words(3));
  const LinkMessage read = decode(words, 3);
  EXPECT_EQ(read.kind, message.kind);
  EXPECT_EQ(read.step, message.step);
  EXPECT_EQ(read.has_gradient, message.has_gradient);
  EXPECT_EQ(read.code, message.code);
  EXPECT_EQ(read.text, message.text);
  const std::string text(5000, 'x');
  EXPECT_EQ(decode(encode({.has_gradient = {}, .text = text}, 0), 0).text, text.substr(0, 2048));
}

}  // namespace
}  // namespace bp::distributed

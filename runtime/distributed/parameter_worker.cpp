#include "runtime/distributed/parameter_worker.hpp"

#include <algorithm>
#include <chrono>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

using Kind = LinkMessage::Kind;

// How long a worker that fails waits for the servers to hear of it.
constexpr Duration kTellTime = std::chrono::seconds(2);

std::string server_text(const LinkToServer& server) {
  return "the server on rank " + std::to_string(server.rank);
}

}  // namespace

ParameterWorker::~ParameterWorker() {
  if (is_finished_ || failure_code_ != BP_OK) return;
  if (step_ > 0) {
    tell_servers(BP_ABORTED, who_ + ": the worker ended before finish()");
  } else {
    for (const LinkToServer& server : servers_) server.link->abort();
  }
}

void ParameterWorker::push() {
  check_usable("push()");
  const auto has_gradient = [](const LinkToServer& server) {
    return std::ranges::any_of(server.parameters, [](const Tensor& t) { return bool(t.grad()); });
  };
  if (std::ranges::none_of(servers_, has_gradient)) {
    throw Error(BP_INVALID_ARGUMENT,
                who_ + ": push(): no parameter has a gradient; allowed: behind backward()");
  }
  if (is_pulling_) {
    throw Error(BP_INVALID_ARGUMENT, who_ + ": push() is called again before the parameters of " +
                                         "the last push were taken; allowed: pull() first");
  }
  ++step_;
  is_finished_ = false;
  for (LinkToServer& server : servers_) {
    try {
      send_gradients(server);
    } catch (const Error& e) {
      fail(e.code(), who_ + " could not push step " + std::to_string(step_) + " to " +
                         server_text(server) + ": " + e.what());
    }
  }
  is_pulling_ = true;
}

void ParameterWorker::send_gradients(LinkToServer& server) {
  const NoGradGuard no_grad;
  LinkMessage message{.kind = Kind::kPush, .step = step_, .has_gradient = {}, .text = {}};
  for (size_t i = 0; i < server.parameters.size(); ++i) {
    const Tensor gradient = server.parameters[i].grad();
    message.has_gradient.push_back(bool(gradient));
    if (gradient) server.link->values().views[i].copy_from(gradient);
  }
  server.link->send(message);
  server.link->send_values(server.link->values());
  server.link->expect_message();
  server.values = server.link->receive_values();
}

void ParameterWorker::pull() {
  check_usable("pull()");
  if (!is_pulling_) {
    throw Error(BP_INVALID_ARGUMENT,
                who_ + ": pull() has nothing to take; allowed: one pull() behind each push()");
  }
  wait_for_servers("the parameters behind step " + std::to_string(step_) + " from", true);
  put_parameters();
  is_pulling_ = false;
}

void ParameterWorker::finish() {
  check_usable("finish()");
  if (is_finished_) {
    throw Error(BP_INVALID_ARGUMENT,
                who_ + ": finish() is called again; allowed: once behind the last push()");
  }
  if (is_pulling_) pull();
  for (LinkToServer& server : servers_) {
    try {
      server.link->send({.kind = Kind::kFinish, .step = step_, .has_gradient = {}, .text = {}});
      server.link->expect_message();
    } catch (const Error& e) {
      fail(e.code(),
           who_ + " could not tell " + server_text(server) + " that it has finished: " + e.what());
    }
  }
  wait_for_servers("the other workers to finish, at", false);
  put_parameters();
  is_finished_ = true;
}

// Takes the messages of all servers in turn, so that none of them waits for another.
void ParameterWorker::wait_for_servers(const std::string& what, bool is_push) {
  std::vector<LinkToServer*> waiting;
  for (LinkToServer& server : servers_) waiting.push_back(&server);
  while (!waiting.empty()) {
    std::erase_if(waiting, [&](LinkToServer* server) {
      try {
        return take_answer(*server, is_push);
      } catch (const Error& e) {
        fail(e.code(), who_ + " waited for " + what + " " + server_text(*server) + ": " + e.what());
      }
    });
  }
}

// Waits for one message, and the values that belong to it. Returns whether it is the answer.
bool ParameterWorker::take_answer(LinkToServer& server, bool is_push) {
  ParameterLink& link = *server.link;
  const Duration timeout = link.timeout();
  const LinkMessage answer =
      link.wait_for_message(timeout == Duration::max() ? timeout : timeout / 2);
  if (is_push) server.values.wait();
  switch (answer.kind) {
    case Kind::kWait:
      link.expect_message();
      if (is_push) server.values = link.receive_values();
      return false;
    case Kind::kParameters:
      if (!is_push) link.receive_values().wait();
      return true;
    case Kind::kFailure:
      server.is_open = false;
      throw Error(answer.code, answer.text);
    default:
      throw Error(BP_INTERNAL,
                  "the message is not known; allowed: one version of the runtime on all ranks");
  }
}

void ParameterWorker::put_parameters() {
  const NoGradGuard no_grad;
  for (const LinkToServer& server : servers_) {
    for (size_t i = 0; i < server.parameters.size(); ++i) {
      server.parameters[i].detach().copy_from(server.link->values().views[i]);
    }
  }
}

void ParameterWorker::check_usable(const char* call) const {
  if (failure_code_ == BP_OK) return;
  throw Error(failure_code_, who_ + ": " + call + " behind a failure: " + failure_);
}

void ParameterWorker::fail(bp_status code, const std::string& text) {
  failure_ = text;
  failure_code_ = code;
  tell_servers(code, text);
  throw Error(code, text);
}

// Tells the servers that still listen. A link over which this does not succeed ends. One over which
// it does must not end by force, since the server might then not read the message.
void ParameterWorker::tell_servers(bp_status code, const std::string& text) {
  const LinkMessage message{
      .kind = Kind::kFailure, .step = step_, .has_gradient = {}, .code = code, .text = text};
  std::vector<Work> works(servers_.size());
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i].is_open) continue;
    try {
      works[i] = servers_[i].link->send(message);
    } catch (const Error&) {
      servers_[i].is_open = false;  // It is the one that failed, or knows of the failure.
    }
  }
  const auto end = std::chrono::steady_clock::now() + kTellTime;
  for (size_t i = 0; i < servers_.size(); ++i) {
    if (!servers_[i].is_open) continue;
    servers_[i].is_open = false;
    try {
      works[i].wait(std::max<Duration>(end - std::chrono::steady_clock::now(), Duration(0)));
    } catch (const Error&) {
      servers_[i].link->abort();
    }
  }
}

}  // namespace bp::distributed

// The side of a worker of a parameter server (parameter_server.hpp).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/distributed/parameter_link.hpp"

namespace bp::distributed {

// One server, as a worker sees it.
struct LinkToServer {
  uint32_t rank = 0;               // Of the server, in the group.
  std::vector<Tensor> parameters;  // Of the worker, that the server has.
  std::unique_ptr<ParameterLink> link;
  Work values;          // The parameters that the last push asked for.
  bool is_open = true;  // Whether the server may still listen.
};

class ParameterWorker {
 public:
  // `who` names this rank in errors.
  ParameterWorker(std::string who, std::vector<LinkToServer> servers)
      : who_(std::move(who)), servers_(std::move(servers)) {}
  ~ParameterWorker();
  ParameterWorker(const ParameterWorker&) = delete;

  void push();
  void pull();
  void finish();

 private:
  void check_usable(const char* call) const;
  void send_gradients(LinkToServer& server);
  void wait_for_servers(const std::string& what, bool is_push);
  static bool take_answer(LinkToServer& server, bool is_push);
  void put_parameters();
  [[noreturn]] void fail(bp_status code, const std::string& text);
  void tell_servers(bp_status code, const std::string& text);

  const std::string who_;
  std::vector<LinkToServer> servers_;
  uint64_t step_ = 0;  // Pushes since the constructor.
  bool is_pulling_ = false;
  bool is_finished_ = false;
  std::string failure_;  // Why the object cannot be used any more.
  bp_status failure_code_ = BP_OK;
};

}  // namespace bp::distributed

// One worker and one server of a parameter server: what they send each other, and how it looks.
//
//   worker                              server
//     message kPush, gradients  ------>   applies them
//                               <------   message kWait, values without a meaning: the worker is at
//                                         the bound; eight times in a timeout
//                               <------   message kParameters or kFailure, parameters
//     ...
//     message kFinish           ------>
//                               <------   message kWait: other workers go on; as often
//                               <------   message kParameters, parameters; or message kFailure
//
// So a server that is silent for half of the timeout is taken for gone, before anybody loses
// patience with the worker. A worker that fails sends kFailure where a kPush or kFinish would be.
// An answer to a push always has values, so that the worker receives them while it does other work.
// A message has one size for all of a link.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backplane/runtime/distributed/process_group.hpp"

namespace bp::distributed {

struct LinkMessage {
  enum class Kind : int64_t { kPush = 1, kFinish = 2, kParameters = 3, kWait = 4, kFailure = 5 };
  Kind kind = Kind::kWait;
  uint64_t step = 0;               // Of the worker, from 1.
  std::vector<bool> has_gradient;  // For kPush: of each parameter of the server.
  bp_status code = BP_OK;          // For kFailure.
  std::string text;                // For kFailure. A long one is cut.
};

// Return a message as numbers, and back. A message for `parameter_count` parameters has
// message_words(parameter_count) numbers.
size_t message_words(size_t parameter_count);
std::vector<int64_t> encode(const LinkMessage& message, size_t parameter_count);
LinkMessage decode(const std::vector<int64_t>& words, size_t parameter_count);

// Values of some parameters, one behind the other in a buffer for each dtype. All values of the
// same parameters look alike, and the gaps mean nothing.
struct FlatValues {
  explicit FlatValues(const std::vector<Tensor>& parameters);

  std::vector<Tensor> buffers;
  std::vector<Tensor> views;  // Of the buffers, with the shapes of the parameters.
};

class ParameterLink {
 public:
  // `pair` has the server as rank 0 and the worker as rank 1. `parameters` are those of the server.
  ParameterLink(const ProcessGroup& pair, const std::vector<Tensor>& parameters);
  ParameterLink(const ParameterLink&) = delete;

  // Submit, and do not block.
  Work send(const LinkMessage& message);
  void expect_message();
  Work send_values(const FlatValues& values);
  Work receive_values();  // Fills values().

  // Waits for the message that was expected, and returns it. Throws BP_TIMEOUT if it does not come
  // within `timeout`.
  LinkMessage wait_for_message(Duration timeout = Duration::max());

  const FlatValues& values() const { return values_; }
  size_t size() const { return values_.views.size(); }

  // Ends the link. The other side then learns that it has ended.
  void abort() noexcept;
  Duration timeout() const { return pair_.timeout(); }

 private:
  const ProcessGroup pair_;
  const uint32_t peer_;
  const FlatValues values_;
  const Tensor incoming_;  // The message that is expected.
  Work message_;
};

}  // namespace bp::distributed

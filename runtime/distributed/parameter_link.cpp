#include "runtime/distributed/parameter_link.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backplane/runtime/autograd.hpp"
#include "backplane/runtime/error.hpp"
#include "runtime/distributed/buckets.hpp"
#include "runtime/distributed/store_values.hpp"

namespace bp::distributed {
namespace {

// A message is these numbers, one for each parameter, and the bytes of the text.
enum Word : size_t { kKind, kStep, kCode, kTextBytes, kFirstFlag };
constexpr size_t kMostTextBytes = 2048;

}  // namespace

size_t message_words(size_t parameter_count) {
  return kFirstFlag + parameter_count + kMostTextBytes / sizeof(int64_t);
}

std::vector<int64_t> encode(const LinkMessage& message, size_t parameter_count) {
  std::vector<int64_t> words(message_words(parameter_count));
  const size_t text_bytes = std::min(message.text.size(), kMostTextBytes);
  words[kKind] = static_cast<int64_t>(message.kind);
  words[kStep] = static_cast<int64_t>(message.step);
  words[kCode] = message.code;
  words[kTextBytes] = static_cast<int64_t>(text_bytes);
  for (size_t i = 0; i < message.has_gradient.size(); ++i) {
    words[kFirstFlag + i] = message.has_gradient[i] ? 1 : 0;
  }
  std::memcpy(words.data() + kFirstFlag + parameter_count, message.text.data(), text_bytes);
  return words;
}

LinkMessage decode(const std::vector<int64_t>& words, size_t parameter_count) {
  LinkMessage message;
  message.kind = static_cast<LinkMessage::Kind>(words[kKind]);
  message.step = static_cast<uint64_t>(words[kStep]);
  message.code = static_cast<bp_status>(words[kCode]);
  for (size_t i = 0; i < parameter_count; ++i) {
    message.has_gradient.push_back(words[kFirstFlag + i] != 0);
  }
  message.text.resize(std::min(static_cast<size_t>(words[kTextBytes]), kMostTextBytes));
  std::memcpy(message.text.data(), words.data() + kFirstFlag + parameter_count,
              message.text.size());
  return message;
}

FlatValues::FlatValues(const std::vector<Tensor>& parameters) : views(parameters.size()) {
  const NoGradGuard no_grad;
  std::vector<size_t> order(parameters.size());
  std::iota(order.begin(), order.end(), size_t{0});
  for (const auto& members : assign_buckets(parameters, order, UINT64_MAX, UINT64_MAX)) {
    const Device device = parameters[members[0]].device();
    const int64_t alignment = alignment_bytes(device);
    int64_t count = 0;
    for (const size_t i : members) count += padded_count(parameters[i], alignment);
    const Tensor buffer = empty({count}, parameters[members[0]].dtype(), device);
    int64_t offset = 0;
    for (const size_t i : members) {
      const Tensor& parameter = parameters[i];
      views[i] = buffer.narrow(0, offset, parameter.numel()).view(parameter.shape());
      offset += padded_count(parameter, alignment);
    }
    if (count > 0) buffers.push_back(buffer);
  }
}

ParameterLink::ParameterLink(const ProcessGroup& pair, const std::vector<Tensor>& parameters)
    : pair_(pair),
      peer_(1 - pair.rank()),
      values_(parameters),
      incoming_(
          empty({static_cast<int64_t>(message_words(parameters.size()))}, BP_I64, pair.device())) {}

Work ParameterLink::send(const LinkMessage& message) {
  const std::vector<int64_t> words = encode(message, size());
  const auto count = static_cast<int64_t>(words.size());
  return pair_.send(from_host(words, {count}, pair_.device()), peer_);
}

void ParameterLink::expect_message() { message_ = pair_.receive(incoming_, peer_); }

LinkMessage ParameterLink::wait_for_message(Duration timeout) {
  try {
    message_.wait(timeout);
  } catch (const Error&) {
    if (message_.is_done()) throw;
    throw Error(BP_TIMEOUT, "no message came within " + duration_text(timeout));
  }
  return decode(incoming_.to_vector<int64_t>(), size());
}

void ParameterLink::abort() noexcept {
  try {
    pair_.abort();
  } catch (const Error&) {
    // The group is not usable, which is what abort() is for.
  }
}

Work ParameterLink::send_values(const FlatValues& values) {
  std::vector<Collective> calls;
  for (const Tensor& buffer : values.buffers) calls.push_back(Collective::send_to(buffer, peer_));
  return calls.empty() ? Work() : pair_.submit(calls);
}

Work ParameterLink::receive_values() {
  std::vector<Collective> calls;
  for (const Tensor& buffer : values_.buffers)
    calls.push_back(Collective::receive_from(buffer, peer_));
  return calls.empty() ? Work() : pair_.submit(calls);
}

}  // namespace bp::distributed

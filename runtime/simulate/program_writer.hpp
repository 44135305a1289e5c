// Writes the program of a pipeline rank, one operation after the other.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/simulate/schedule.hpp"
#include "runtime/simulate/stage_program.hpp"

namespace bp::simulate {

enum Stream : uint8_t {
  kTensorStream = kComputeStream + 1,
  kGatherStream,
  kReduceStream,
  kSendForward,
  kReceiveForward,
  kSendBackward,
  kReceiveBackward,
};

// With two ranks and several stages on each, both directions have messages from rank 0 to rank 1.
inline uint8_t axis_of(Stream stream) {
  return stream == kSendForward || stream == kReceiveForward ? kForwardAxis : kBackwardAxis;
}

// Appends operations, with what the next ones wait for.
class Writer {
 public:
  explicit Writer(std::vector<std::string>& labels) : labels_(labels) {
    for (uint32_t i = 0; i < labels_.size(); ++i) numbers_[labels_[i]] = i;
  }

  // Operations from now on are those of this micro-batch and stage.
  void be_at(uint32_t micro_batch, uint32_t stage) {
    micro_batch_ = micro_batch;
    stage_ = stage;
  }

  // The next operation that computes waits for `operation`.
  void need(uint32_t operation) { needs_.push_back(operation); }

  void compute(const std::string& label, double seconds) {
    last_compute_ = add({.label = number_of(label), .seconds = seconds, .after = needs_});
    needs_.clear();
  }

  // A call that starts when everything before it has been computed.
  uint32_t call(Stream stream, uint8_t axis, CallKind kind, double bytes,
                const std::string& label) {
    return add({.kind = OperationKind::kCall,
                .stream = stream,
                .axis = axis,
                .call = kind,
                .label = number_of(label),
                .bytes = bytes,
                .after = all_before()});
  }

  // A call that starts when the operation `after` has ended, if there is one.
  uint32_t early_call(Stream stream, uint8_t axis, CallKind kind, double bytes,
                      const std::string& label, std::optional<uint32_t> after) {
    Operation operation{.kind = OperationKind::kCall,
                        .stream = stream,
                        .axis = axis,
                        .call = kind,
                        .label = number_of(label),
                        .bytes = bytes};
    if (after) operation.after = {*after};
    return add(std::move(operation));
  }

  void send(Stream stream, uint32_t peer, double bytes, const std::string& label) {
    add({.kind = OperationKind::kSend,
         .stream = stream,
         .axis = axis_of(stream),
         .call = CallKind::kSend,
         .peer = peer,
         .label = number_of(label),
         .bytes = bytes,
         .after = all_before()});
  }

  void receive(Stream stream, uint32_t peer, double bytes, const std::string& label) {
    need(add({.kind = OperationKind::kReceive,
              .stream = stream,
              .axis = axis_of(stream),
              .call = CallKind::kSend,
              .peer = peer,
              .label = number_of(label),
              .bytes = bytes}));
  }

  std::optional<uint32_t> last_compute() const { return last_compute_; }
  Program take() { return std::move(program_); }

 private:
  std::vector<uint32_t> all_before() const {
    std::vector<uint32_t> before = needs_;
    if (last_compute_) before.push_back(*last_compute_);
    return before;
  }

  uint32_t add(Operation operation) {
    operation.micro_batch = micro_batch_;
    operation.stage = stage_;
    program_.operations.push_back(std::move(operation));
    return static_cast<uint32_t>(program_.operations.size() - 1);
  }

  uint32_t number_of(const std::string& label) {
    const auto [place, is_new] = numbers_.try_emplace(label, static_cast<uint32_t>(labels_.size()));
    if (is_new) labels_.push_back(label);
    return place->second;
  }

  std::vector<std::string>& labels_;
  std::unordered_map<std::string, uint32_t> numbers_;
  Program program_;
  uint32_t micro_batch_ = kNone, stage_ = kNone;
  std::vector<uint32_t> needs_;
  std::optional<uint32_t> last_compute_;
};

}  // namespace bp::simulate

// Decides by a trial whether a device computes a call that it has no kernel of its own for.
//
// bp_kernel_find() names the decomposition of an op without asking whether the device has kernels
// for the ops that the decomposition consists of. Only a launch asks that. So such a call is
// launched once, on memory of zeros, and the answer is kept for calls that differ in memory alone.
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backplane/host.h"

namespace bpg {

// A tensor of a frame. `same_as` is the place in the list of the input whose elements it
// overwrites, or -1.
struct TrialTensor {
  bp_tensor* tensor;
  int same_as;
};

class Trials {
 public:
  explicit Trials(const bp_target* target) : target_(target) {}
  ~Trials();
  Trials(const Trials&) = delete;
  Trials& operator=(const Trials&) = delete;

  // Throws Refusal if the device does not compute the call, or has no memory for the trial; the
  // latter is not kept. The tensors are those of `args`, and are as they were when the call
  // returns. It waits for the device. Safe from any thread.
  void require(uint32_t op, const void* args, const std::vector<TrialTensor>& tensors);

 private:
  bp_status run(uint32_t op, const void* args, const std::vector<TrialTensor>& tensors);

  const bp_target* target_;
  bp_stream* stream_ = nullptr;  // mutex_ guards all below, and is held during a trial.
  std::mutex mutex_;
  std::map<std::string, std::string> refusals_;  // By call; "" means that it was computed.
};

}  // namespace bpg

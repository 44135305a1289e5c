// The layers on one instance of a backend. They are chosen by name, and put on at its entry.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "registry/layers/list.hpp"

namespace bp::layers {

// The choice of a user: "validate,trace" and "trace.file=x.json,fault.seed=7".
struct Choice {
  std::string layers;
  std::string options;
};

// A backend that wraps a backend.
class LayeredBackend;

// A stack is empty if no layer is asked for. It outlives the instance that it was put around.
class Stack {
 public:
  Stack();
  ~Stack();
  Stack(const Stack&) = delete;

  // Makes the layers of `choice`, the first outermost. Returns BP_NOT_FOUND for a layer or an
  // option that does not exist, with a list of those that do, and BP_INVALID_ARGUMENT for a bad
  // value. `setup` has everything but the options.
  bp_status make(const Choice& choice, const Setup& setup);

  // Returns the services that the backend receives in place of `host`.
  const bp_host* wrap_host(const bp_host* host);

  // Puts the layers in front of an instance. *out_front is the outermost. If one of them does not
  // begin, the instance is shut down.
  bp_status put_on(const bp_backend& backend, const bp_backend** out_front);

  // Returns the minor of the ABI that the host sees of a backend of `minor`.
  uint32_t shown_minor(uint32_t minor) const;

  bool is_empty() const { return backends_.empty(); }

  // Returns text like "validate,trace".
  const std::string& names() const { return names_; }

  // Returns NULL if `name` is not in the stack.
  const Layer* find(std::string_view name) const;

 private:
  std::vector<std::unique_ptr<LayeredBackend>> backends_;  // The outermost comes first.
  std::string names_;
};

// Checks `choice` without making layers.
bp_status check_choice(const Choice& choice);

}  // namespace bp::layers

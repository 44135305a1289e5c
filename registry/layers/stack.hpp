// The layers on one instance of a backend: chosen by name, put in at its entry.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "registry/layers/list.hpp"

namespace bp::layers {

// What a user asked for: "validate,trace" and "trace.file=x.json,fault.seed=7".
struct Choice {
  std::string layers;
  std::string options;
};

// A backend that wraps a backend.
class LayeredBackend;

// Empty where no layer is asked for. Outlives the instance that it was put around.
class Stack {
 public:
  Stack();
  ~Stack();
  Stack(const Stack&) = delete;

  // Makes the layers of `choice`, the first outermost. BP_NOT_FOUND for a layer or an option that
  // there is not, with a list of those that there are; BP_INVALID_ARGUMENT for a value. `setup` has
  // everything but the options.
  bp_status make(const Choice& choice, const Setup& setup);

  // The services that the backend receives in place of `host`.
  const bp_host* wrap_host(const bp_host* host);

  // Puts the layers in front of an instance; the outermost is *out_front. Where one of them does
  // not begin, the instance is shut down.
  bp_status put_on(const bp_backend& backend, const bp_backend** out_front);

  // The minor of the ABI that the host sees of a backend of `minor`.
  uint32_t shown_minor(uint32_t minor) const;

  bool is_empty() const { return backends_.empty(); }

  // "validate,trace".
  const std::string& names() const { return names_; }

  // NULL if `name` is not in the stack.
  const Layer* find(std::string_view name) const;

 private:
  std::vector<std::unique_ptr<LayeredBackend>> backends_;  // The outermost first.
  std::string names_;
};

// Checks `choice` alone.
bp_status check_choice(const Choice& choice);

}  // namespace bp::layers

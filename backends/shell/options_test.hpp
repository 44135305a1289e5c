// A host that has only options, for tests of what reads them.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "backplane/shell/options.hpp"

namespace bp {

// The options that a user gave, by their names.
using Values = std::map<std::string, std::string>;

// Returns a host with these options. It borrows `values`.
inline bp_host host_with(Values& values) {
  bp_host host{};
  host.self = &values;
  host.get_option = [](void* self, const char* key, const char** out_value) -> bp_status {
    const Values& given = *static_cast<Values*>(self);
    const auto found = given.find(key);
    if (found == given.end()) return BP_NOT_FOUND;
    *out_value = found->second.c_str();
    return BP_OK;
  };
  return host;
}

// Returns the sentence with which body() refuses a value, or an empty one.
template <typename Body>
std::string refusal_of(const Body& body) {
  try {
    body();
  } catch (const StatusError& e) {
    EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
    return e.what();
  }
  return "";
}

}  // namespace bp

// What tests expect of errors.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "backplane/runtime/error.hpp"

namespace bp::distributed {

// Returns the text of the error that `call` throws, which must have this code.
inline std::string message_of(bp_status code, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "(nothing was thrown)";
}

inline void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

}  // namespace bp::distributed

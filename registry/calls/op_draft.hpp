// A description of an op while the host reads it, step by step. Each step has a file of its own.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "registry/boundary/plugin_text.hpp"
#include "registry/calls/runtime_op.hpp"

namespace bp::core {

// The exception that rejects a description.
struct Rejected {
  std::string why;
};

struct OpDraft {
  bp_op_desc given{};                                               // That of the owner.
  std::unique_ptr<RuntimeOp> made = std::make_unique<RuntimeOp>();  // What the host keeps.
  uint32_t end = 2 * sizeof(uint32_t);  // Where the next argument may begin.
  uint32_t last_since = 0;              // The revision of the last argument so far.

  [[noreturn]] void reject(const std::string& why) const { throw Rejected{why}; }
  [[noreturn]] void reject(const bp_op_argument& argument, const std::string& why) const {
    reject(std::string(argument.name) + ": " + why);
  }

  // Copies a text of the owner.
  const char* keep(const char* text) {
    if (text == nullptr) return nullptr;
    return made->texts.emplace_back(clean_text(text, LineBreaks::kIndent)).c_str();
  }

  // Adds the size that the frame has from a revision on.
  void add_size(uint32_t revision, uint32_t size_bytes) {
    if (made->size_count + 1 == kMaxFrameSizes) {
      reject("its frame has grown more than " + std::to_string(kMaxFrameSizes - 1) + " times");
    }
    made->sizes[made->size_count++] = {revision, size_bytes};
  }
};

// Reads an argument but for its rules, and checks its place in the frame.
void read_place(OpDraft& draft, const bp_op_argument& argument, uint64_t index);

// Parses the rules of all arguments.
void read_rules(OpDraft& draft);

// Fills the rows for the choice of a kernel and for the checks of frames.
void fill_rows(OpDraft& draft);

}  // namespace bp::core

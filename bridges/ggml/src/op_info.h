// Where the tensors of an op stand in its frame, read from its description once.
#pragma once

#include <cstdint>
#include <vector>

namespace bpg {

struct OpInfo {
  struct Argument {
    uint32_t index;   // In the order of the frame.
    uint32_t offset;  // In bytes; that of the pointer for a list.
    bool is_list;
    uint64_t may_alias;  // Of an output: bit i is argument i.
  };
  std::vector<Argument> inputs;
  std::vector<Argument> outputs;
};

// Lends what is known of `op`, until the process ends. Safe from any thread.
const OpInfo& op_info(uint32_t op);

}  // namespace bpg

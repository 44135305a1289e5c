#include "backplane/shell/partitions.hpp"

#include <algorithm>

namespace bp {
namespace {

// When the accesses of a value end. A stage is all nodes of one partition. A node that is not taken
// runs between its stage and the one before.
struct Accesses {
  uint32_t written = 0, read = 0;  // The first stages in which nodes may use the result.
};

// Returns the first stage in which a node may run.
uint32_t first_stage(const ProgramNode& node, const std::vector<Accesses>& values) {
  uint32_t stage = 0;
  for (size_t i = 0; i < node.values.size(); ++i) {
    if (node.values[i] == BP_NO_VALUE) continue;
    const Accesses& value = values[node.values[i]];
    stage = std::max(stage, value.written);
    if (node.frame.arguments()[i].is_written) stage = std::max(stage, value.read);
  }
  return stage;
}

void note_accesses(const ProgramNode& node, uint32_t stage, std::vector<Accesses>& values) {
  for (size_t i = 0; i < node.values.size(); ++i) {
    if (node.values[i] == BP_NO_VALUE) continue;
    Accesses& value = values[node.values[i]];
    const FrameArgument& argument = node.frame.arguments()[i];
    if (argument.is_read) value.read = std::max(value.read, stage);
    if (argument.is_written) value.written = std::max(value.written, stage);
  }
}

// Numbers the stages that have nodes, in order.
Partitions numbered(std::vector<uint32_t> stages, uint32_t stage_count) {
  std::vector<uint32_t> numbers(stage_count, BP_NO_PARTITION);
  for (const uint32_t stage : stages) {
    if (stage != BP_NO_PARTITION) numbers[stage] = 0;
  }
  Partitions result;
  for (uint32_t& number : numbers) {
    if (number == 0) number = static_cast<uint32_t>(result.count++);
  }
  for (uint32_t& stage : stages) {
    if (stage != BP_NO_PARTITION) stage = numbers[stage];
  }
  result.of_node = std::move(stages);
  return result;
}

}  // namespace

Partitions partition_nodes(const Program& program, const std::vector<bool>& is_taken) {
  std::vector<Accesses> values(program.values.size());
  std::vector<uint32_t> stages(program.nodes.size(), BP_NO_PARTITION);
  uint32_t stage_count = 0;
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    const ProgramNode& node = program.nodes[i];
    const uint32_t stage = first_stage(node, values);
    if (is_taken[i]) stages[i] = stage;
    // What waits for a node that is not taken runs in a later stage than what it waits for.
    const uint32_t end = is_taken[i] ? stage : stage + 1;
    note_accesses(node, end, values);
    stage_count = std::max(stage_count, end + 1);
  }
  return numbered(std::move(stages), stage_count);
}

}  // namespace bp

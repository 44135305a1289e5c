#include "backends/vulkan/specialize.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>

namespace bp::vulkan {
namespace {

// The numbers of SPIR-V that this file reads and writes.
enum Opcode : uint32_t {
  kName = 5,
  kEntryPoint = 15,
  kConstantTrue = 41,
  kConstantFalse = 42,
  kConstant = 43,
  kSpecConstantTrue = 48,
  kSpecConstantFalse = 49,
  kSpecConstant = 50,
  kSpecConstantOp = 52,
  kFunction = 54,
  kFunctionEnd = 56,
  kFunctionCall = 57,
  kStore = 62,
  kDecorate = 71,
  kLogicalOr = 166,
  kLogicalAnd = 167,
  kLogicalNot = 168,
  kIEqual = 170,
  kINotEqual = 171,
  kUGreaterThan = 172,
  kUGreaterThanEqual = 174,
  kULessThan = 176,
  kULessThanEqual = 178,
  kShiftRightLogical = 194,
  kBitwiseAnd = 199,
  kPhi = 245,
  kLoopMerge = 246,
  kSelectionMerge = 247,
  kLabel = 248,
  kBranch = 249,
  kBranchConditional = 250,
  kSwitch = 251,
};
constexpr uint32_t kSpecId = 1;
constexpr size_t kHeaderWords = 5;

using Instruction = std::vector<uint32_t>;

uint32_t opcode_of(const Instruction& instruction) { return instruction[0] & 0xffff; }

Instruction make(Opcode opcode, std::initializer_list<uint32_t> operands) {
  Instruction made{static_cast<uint32_t>(operands.size() + 1) << 16 | opcode};
  made.insert(made.end(), operands.begin(), operands.end());
  return made;
}

// From its label to its branch.
struct Block {
  uint32_t label;
  std::vector<Instruction> body;
};

struct Function {
  uint32_t id = 0;
  std::vector<Instruction> head;  // The function and its parameters.
  std::vector<Block> blocks;
  bool is_called = false;
};

struct Code {
  std::vector<Instruction> globals;  // All that stands before the first function.
  std::vector<Function> functions;
  uint32_t entry = 0;
};

Code read(std::span<const uint32_t> words) {
  Code code;
  bool is_global = true;
  for (size_t next = kHeaderWords; next < words.size();) {
    const size_t count = words[next] >> 16;
    const Instruction instruction(words.begin() + static_cast<ptrdiff_t>(next),
                                  words.begin() + static_cast<ptrdiff_t>(next + count));
    const uint32_t opcode = opcode_of(instruction);
    next += count;
    if (opcode == kEntryPoint) code.entry = instruction[2];
    if (opcode == kFunction) code.functions.push_back({.id = instruction[2]});
    is_global = is_global && opcode != kFunction;
    if (is_global) {
      code.globals.push_back(instruction);
      continue;
    }
    Function& function = code.functions.back();
    if (opcode == kLabel) function.blocks.push_back({instruction[1], {}});
    if (opcode == kFunctionEnd) continue;
    (function.blocks.empty() ? function.head : function.blocks.back().body).push_back(instruction);
  }
  return code;
}

// ---- Constants
// -----------------------------------------------------------------------------------

// The values of constants of 32 bits and of conditions, by their ids.
class Values {
 public:
  Values(const std::vector<Instruction>& globals, std::span<const uint32_t> constants) {
    std::map<uint32_t, uint32_t> numbers;
    for (const Instruction& i : globals) {
      if (opcode_of(i) == kDecorate && i.size() == 4 && i[2] == kSpecId) numbers[i[1]] = i[3];
    }
    for (const Instruction& i : globals) {
      const auto own = i.size() > 2 ? numbers.find(i[2]) : numbers.end();
      const bool is_given = own != numbers.end() && own->second < constants.size();
      if (const auto value = value_of(i)) {
        values_[i[2]] = is_given ? constants[own->second] : *value;
      }
    }
  }

  std::optional<uint32_t> find(uint32_t id) const {
    const auto found = values_.find(id);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }

 private:
  std::optional<uint32_t> value_of(const Instruction& i) const {
    switch (opcode_of(i)) {
      case kConstantTrue:
      case kSpecConstantTrue:
        return 1;
      case kConstantFalse:
      case kSpecConstantFalse:
        return 0;
      case kConstant:
      case kSpecConstant:
        return i.size() == 4 ? std::optional(i[3]) : std::nullopt;
      case kSpecConstantOp: {
        const auto a = find(i[4]), b = i.size() > 5 ? find(i[5]) : std::nullopt;
        if (i[3] == kLogicalNot && a) return *a == 0 ? 1 : 0;
        return a && b ? computed(i[3], *a, *b) : std::nullopt;
      }
      default:
        return std::nullopt;
    }
  }

  static std::optional<uint32_t> computed(uint32_t opcode, uint32_t a, uint32_t b) {
    switch (opcode) {
      case kLogicalOr:
        return a | b;
      case kLogicalAnd:
      case kBitwiseAnd:
        return a & b;
      case kIEqual:
        return a == b;
      case kINotEqual:
        return a != b;
      case kUGreaterThan:
        return a > b;
      case kUGreaterThanEqual:
        return a >= b;
      case kULessThan:
        return a < b;
      case kULessThanEqual:
        return a <= b;
      case kShiftRightLogical:
        return b < 32 ? std::optional(a >> b) : std::nullopt;
      default:
        return std::nullopt;
    }
  }

  std::map<uint32_t, uint32_t> values_;
};

// ---- Branches
// ------------------------------------------------------------------------------------

// Leaves the chosen branch alone, if the block ends in a choice between constants.
void choose(Block& block, const Values& values) {
  Instruction& end = block.body.back();
  const bool has_merge =
      block.body.size() > 1 && opcode_of(block.body[block.body.size() - 2]) == kSelectionMerge;
  if (!has_merge) return;  // It ends a loop.
  const auto value = end.size() > 1 ? values.find(end[1]) : std::nullopt;
  if (!value) return;
  if (opcode_of(end) == kBranchConditional) {
    const Instruction chosen = make(kBranch, {*value != 0 ? end[2] : end[3]});
    block.body.pop_back();
    block.body.back() = chosen;  // In the place of the merge.
  } else if (opcode_of(end) == kSwitch) {
    // It stays a switch, since a `break` must leave one.
    uint32_t target = end[2];
    for (size_t k = 3; k + 1 < end.size(); k += 2) {
      if (end[k] == *value) target = end[k + 1];
    }
    end = make(kSwitch, {end[1], target});
  }
}

// Returns the labels of the blocks that may follow.
std::vector<uint32_t> successors(const Block& block) {
  const Instruction& end = block.body.back();
  switch (opcode_of(end)) {
    case kBranch:
      return {end[1]};
    case kBranchConditional:
      return {end[2], end[3]};
    case kSwitch: {
      std::vector<uint32_t> labels{end[2]};
      for (size_t k = 4; k < end.size(); k += 2) labels.push_back(end[k]);
      return labels;
    }
    default:
      return {};
  }
}

// Returns the labels that `block` names beside its successors: where its loop or choice ends, and
// where its loop goes on. SPIR-V wants those blocks even if nothing reaches them.
std::vector<uint32_t> merges(const Block& block) {
  if (block.body.size() < 2) return {};
  const Instruction& merge = block.body[block.body.size() - 2];
  if (opcode_of(merge) == kSelectionMerge) return {merge[1]};
  if (opcode_of(merge) == kLoopMerge) return {merge[1], merge[2]};
  return {};
}

// Removes blocks that nothing reaches.
void remove_blocks(Function& function) {
  std::map<uint32_t, const Block*> by_label;
  for (const Block& block : function.blocks) by_label[block.label] = &block;
  std::set<uint32_t> kept;
  std::vector<uint32_t> open{function.blocks.front().label};
  while (!open.empty()) {
    const uint32_t label = open.back();
    open.pop_back();
    if (!kept.insert(label).second) continue;
    for (const auto& next : {successors(*by_label.at(label)), merges(*by_label.at(label))}) {
      open.insert(open.end(), next.begin(), next.end());
    }
  }
  std::erase_if(function.blocks, [&](const Block& block) { return !kept.contains(block.label); });
}

// A value that depends on the block before keeps the blocks that are left before it.
void trim_phis(Function& function) {
  std::map<uint32_t, std::set<uint32_t>> before;
  for (const Block& block : function.blocks) {
    for (const uint32_t next : successors(block)) before[next].insert(block.label);
  }
  for (Block& block : function.blocks) {
    for (Instruction& i : block.body) {
      if (opcode_of(i) != kPhi) continue;
      Instruction left{0, i[1], i[2]};
      for (size_t k = 3; k + 1 < i.size(); k += 2) {
        if (before[block.label].contains(i[k + 1])) left.insert(left.end(), {i[k], i[k + 1]});
      }
      left[0] = static_cast<uint32_t>(left.size()) << 16 | kPhi;
      i = left;
    }
  }
}

// ---- Functions
// -----------------------------------------------------------------------------------

void mark_calls(std::vector<Function>& functions, uint32_t id) {
  const auto found = std::ranges::find(functions, id, &Function::id);
  if (found == functions.end() || found->is_called) return;
  found->is_called = true;
  for (const Block& block : found->blocks) {
    for (const Instruction& i : block.body) {
      if (opcode_of(i) == kFunctionCall) mark_calls(functions, i[3]);
    }
  }
}

// Returns the id that an instruction of a function defines, or 0. Those that define none have no
// id in second place, or are named here.
uint32_t result_of(const Instruction& i) {
  const uint32_t opcode = opcode_of(i);
  if (opcode == kLabel) return i[1];
  const bool has_none = opcode == kStore || (opcode >= kLoopMerge && opcode <= 255) ||
                        opcode == 63 || opcode == 64 ||    // OpCopyMemory, OpCopyMemorySized.
                        opcode == 99 ||                    // OpImageWrite.
                        opcode == 224 || opcode == 225 ||  // Barriers.
                        opcode == 228 || opcode == 4458;   // OpAtomicStore, a store of a matrix.
  return has_none || i.size() < 3 ? 0 : i[2];
}

void add_results(const Function& function, std::set<uint32_t>& ids) {
  for (const Instruction& i : function.head) ids.insert(result_of(i));
  for (const Block& block : function.blocks) {
    for (const Instruction& i : block.body) ids.insert(result_of(i));
  }
}

void append(std::vector<uint32_t>& words, const std::vector<Instruction>& instructions) {
  for (const Instruction& i : instructions) words.insert(words.end(), i.begin(), i.end());
}

}  // namespace

std::vector<uint32_t> specialize(std::span<const uint32_t> words,
                                 std::span<const uint32_t> constants) {
  Code code = read(words);
  const Values values(code.globals, constants);
  std::set<uint32_t> before, after;
  for (Function& function : code.functions) {
    add_results(function, before);
    if (function.blocks.empty()) continue;
    for (Block& block : function.blocks) choose(block, values);
    remove_blocks(function);
    trim_phis(function);
  }
  mark_calls(code.functions, code.entry);
  std::erase_if(code.functions, [](const Function& function) { return !function.is_called; });
  for (const Function& function : code.functions) add_results(function, after);
  std::erase_if(code.globals, [&](const Instruction& i) {
    const bool is_about_one = opcode_of(i) == kName || opcode_of(i) == kDecorate;
    return is_about_one && before.contains(i[1]) && !after.contains(i[1]);
  });
  std::vector<uint32_t> left(words.begin(), words.begin() + kHeaderWords);
  append(left, code.globals);
  for (const Function& function : code.functions) {
    append(left, function.head);
    for (const Block& block : function.blocks) append(left, block.body);
    append(left, {make(kFunctionEnd, {})});
  }
  return left;
}

}  // namespace bp::vulkan

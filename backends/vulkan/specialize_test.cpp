#include "backends/vulkan/specialize.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>

namespace bp::vulkan {
namespace {

using Words = std::vector<uint32_t>;

constexpr uint32_t word(uint32_t count, uint32_t opcode) { return count << 16 | opcode; }

void add(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

// The ids of the module below.
enum Id : uint32_t {
  kBool = 1,
  kUint,
  kChoice,  // Specialisation constant 0, by default 7.
  kFive,
  kIsFive,  // kChoice == 5.
  kMain,
  kHelper,
  kUnused,
  kResult,
};

Words label(uint32_t id) { return {word(2, 248), id}; }
Words branch(uint32_t to) { return {word(2, 249), to}; }
Words call(uint32_t result, uint32_t function) { return {word(4, 57), kUint, result, function}; }

// A function that computes id `result` and returns.
Words function(uint32_t id, uint32_t first, const Words& body) {
  Words words{word(5, 54), kUint, id, 0, 90};
  add(words, label(first));
  add(words, body);
  add(words, {word(1, 253), word(1, 56)});
  return words;
}

Words head() {
  Words words = {0x07230203, 0x10500, 0, 99, 0};                // The header.
  add(words, {word(4, 15), 5, kMain, 0});                       // The entry point.
  add(words, {word(3, 5), kResult, 0x74});                      // A name.
  add(words, {word(4, 71), kChoice, 1, 0});                     // Its number.
  add(words, {word(2, 20), kBool, word(4, 21), kUint, 32, 0});  // Types.
  add(words, {word(4, 50), kUint, kChoice, 7});                 // Constants.
  add(words, {word(4, 43), kUint, kFive, 5});
  add(words, {word(6, 52), kBool, kIsFive, 170, kChoice, kFive});
  return words;
}

// A module whose main() goes from block 20 to 21 if the constant is 5, else to 22, and from there
// to 23, where id 30 depends on the way. Block 21 calls kHelper, and nothing calls kUnused.
Words module_with_condition() {
  Words words = head();
  add(words, {word(5, 54), kUint, kMain, 0, 90});
  add(words, label(20));
  add(words, {word(3, 247), 23, 0, word(4, 250), kIsFive, 21, 22});
  add(words, label(21));
  add(words, call(kResult, kHelper));
  add(words, branch(23));
  add(words, label(22));
  add(words, branch(23));
  add(words, label(23));
  add(words, {word(7, 245), kUint, 30, kResult, 21, kFive, 22});
  add(words, {word(1, 253), word(1, 56)});
  add(words, function(kHelper, 40, {}));
  add(words, function(kUnused, 41, {}));
  return words;
}

bool contains(const Words& words, const Words& part) {
  return std::search(words.begin(), words.end(), part.begin(), part.end()) != words.end();
}

TEST(Specialize, LeavesTheChosenBranchAndWhatItCalls) {
  const Words left = specialize(module_with_condition(), std::array{5u});
  EXPECT_FALSE(contains(left, {word(3, 247)}));
  EXPECT_TRUE(contains(left, branch(21)));
  EXPECT_TRUE(contains(left, label(21)));
  EXPECT_FALSE(contains(left, label(22)));
  EXPECT_TRUE(contains(left, label(40)));
  EXPECT_FALSE(contains(left, label(41)));
  EXPECT_TRUE(contains(left, {word(3, 5), kResult, 0x74}));
  EXPECT_TRUE(contains(left, {word(5, 245), kUint, 30, kResult, 21}));
}

TEST(Specialize, TakesTheDefaultOfAConstantThatIsNotGiven) {
  const Words left = specialize(module_with_condition(), {});
  EXPECT_TRUE(contains(left, branch(22)));
  EXPECT_FALSE(contains(left, label(21)));
  EXPECT_FALSE(contains(left, label(40)));
  EXPECT_FALSE(contains(left, {word(3, 5), kResult, 0x74}));
  EXPECT_TRUE(contains(left, {word(5, 245), kUint, 30, kFive, 22}));
  EXPECT_TRUE(contains(left, {word(4, 71), kChoice, 1, 0}));
}

// A module whose main() has a case for 5 in block 21, one for 6 in 22, and goes on in 23.
Words module_with_switch() {
  Words words = head();
  add(words, {word(5, 54), kUint, kMain, 0, 90});
  add(words, label(20));
  add(words, {word(3, 247), 23, 0, word(7, 251), kChoice, 23, 5, 21, 6, 22});
  for (const uint32_t id : {21u, 22u}) {
    add(words, label(id));
    add(words, branch(23));
  }
  add(words, label(23));
  add(words, {word(1, 253), word(1, 56)});
  return words;
}

TEST(Specialize, LeavesOneCaseOfASwitch) {
  const Words left = specialize(module_with_switch(), std::array{6u});
  EXPECT_TRUE(contains(left, {word(3, 247), 23, 0, word(3, 251), kChoice, 22}));
  EXPECT_TRUE(contains(left, label(22)));
  EXPECT_FALSE(contains(left, label(21)));
  EXPECT_TRUE(contains(left, label(23)));
}

TEST(Specialize, LeavesTheDefaultOfASwitch) {
  const Words left = specialize(module_with_switch(), std::array{8u});
  EXPECT_TRUE(contains(left, {word(3, 251), kChoice, 23}));
  EXPECT_FALSE(contains(left, label(21)));
  EXPECT_FALSE(contains(left, label(22)));
}

// The condition of a loop stays, because the loop needs both branches.
TEST(Specialize, LeavesLoopsAsTheyAre) {
  Words words = head();
  add(words, {word(5, 54), kUint, kMain, 0, 90});
  add(words, label(20));
  add(words, {word(4, 246), 22, 21, 0, word(4, 250), kIsFive, 21, 22});
  add(words, label(21));
  add(words, branch(20));
  add(words, label(22));
  add(words, {word(1, 253), word(1, 56)});
  EXPECT_EQ(specialize(words, std::array{6u}), words);
}

}  // namespace
}  // namespace bp::vulkan

#include "conformance/faults/fault.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "conformance/faults/entries.hpp"
#include "conformance/faults/generator.hpp"
#include "conformance/faults/ops.hpp"
#include "conformance/faults/severity.hpp"
#include "conformance/faults/tally.hpp"

namespace bp::faults {
namespace {

const std::vector<Subject> kSubjects = {{"add", {"f32", "f16", "i32"}}, {"softmax", {"f64"}}};

std::vector<std::string> draw(uint64_t seed, size_t count, const std::string& family = "") {
  Generator generator(seed, kSubjects, family);
  std::vector<std::string> texts;
  while (texts.size() < count) texts.push_back(text_of(generator.next().value()));
  return texts;
}

TEST(FaultText, IsReadAsItWasWritten) {
  const Fault fault{"matmul", "f32", "row_tail16", "offset", "small", 71};
  EXPECT_EQ(text_of(fault), "matmul/f32/row_tail16/offset/small/71");
  const auto read = fault_from_text(text_of(fault));
  ASSERT_TRUE(read);
  EXPECT_EQ(text_of(*read), text_of(fault));
  EXPECT_FALSE(read->is_of_table());
  EXPECT_TRUE(fault_from_text("memory.copy/-/-/odd/short16/5")->is_of_table());
}

TEST(FaultText, IsRefusedIfAWordIsUnknown) {
  for (const char* text :
       {"", "add", "add/f32/element/always/small", "add/f32/element/always/small/x",
        "add/f32/element/always/small/1/2", "add/f32/nowhere/always/small/1",
        "add/f32/element/never/small/1", "add/f32/element/always/better/1",
        "add/f32/element/always/refused/1", "add/f32/-/always/small/1",
        "memory.copy/-/-/aliased/short16/1", "memory.copy/-/-/always/sign/1", "///// 1",
        "add/f32/element/always/small/99999999999999999999"}) {
    EXPECT_FALSE(fault_from_text(text)) << text;
  }
}

TEST(Generator, DrawsTheSameFaultsFromASeed) {
  EXPECT_EQ(draw(7, 100), draw(7, 100));
  EXPECT_NE(draw(7, 100), draw(8, 100));
}

TEST(Generator, DrawsNoFaultTwiceAndReadsEachOne) {
  const std::vector<std::string> texts = draw(1, 1000);
  EXPECT_EQ(std::set<std::string>(texts.begin(), texts.end()).size(), texts.size());
  for (const std::string& text : texts) EXPECT_TRUE(fault_from_text(text)) << text;
}

TEST(Generator, DrawsEveryFamilyAndOnlyTheOneThatIsWanted) {
  std::set<std::string> seen;
  for (const std::string& text : draw(2, 2000)) seen.insert(family_of(*fault_from_text(text)));
  for (const std::string& family : families()) {
    EXPECT_TRUE(seen.contains(family)) << family;
    for (const std::string& text : draw(3, 5, family)) {
      EXPECT_EQ(family_of(*fault_from_text(text)), family) << text;
    }
  }
}

TEST(Generator, EndsWhereNoFaultIsLeft) {
  Generator generator(1, {{"relu", {"i32"}}}, "rounding");
  EXPECT_FALSE(generator.next()) << "integers are not rounded";
}

TEST(Generator, LeavesOutFaultsThatChangeNothing) {
  for (const std::string& text : draw(4, 2000)) {
    const Fault fault = *fault_from_text(text);
    EXPECT_FALSE(fault.subject == "add" && fault.kind == "exchanged") << text;
    EXPECT_FALSE(fault.dtype == "i32" && fault.kind == "nan") << text;
    EXPECT_FALSE(fault.subject == "softmax" && fault.kind == "optional_dropped") << text;
    EXPECT_FALSE(fault.subject == "memory.allocate" && fault.kind == "short16") << text;
  }
}

TEST(Ops, KnowTheirTensors) {
  int64_t extent = 3, stride = 1;
  bp_tensor x{};
  x.shape = &extent;
  x.strides = &stride;
  x.ndim = 1;
  const bp_tensor* list[] = {&x, &x};
  bp_cat_args args{};
  args.struct_size = sizeof(args);
  args.xs_count = 2;
  args.xs = list;
  args.y = &x;
  const std::vector<Argument> tensors = tensors_of(*find_op("cat"), &args);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[1].member->name, "xs");
  EXPECT_TRUE(tensors[2].member->is_output());
  args.struct_size = offsetof(bp_cat_args, y);
  EXPECT_EQ(tensors_of(*find_op("cat"), &args).size(), 2u) << "an older frame has no y";
}

TEST(Entries, HaveTheFaultsThatTheirSignaturesAllow) {
  const auto can_have = [](std::string_view table, std::string_view name, std::string_view kind) {
    for (const Entry& entry : entries()) {
      if (entry.table == table && entry.name == name) return entry.can_have(kind);
    }
    ADD_FAILURE() << "no entry " << table << "." << name;
    return false;
  };
  EXPECT_TRUE(can_have("memory", "copy", "short16"));
  EXPECT_TRUE(can_have("memory", "copy", "skipped"));
  EXPECT_FALSE(can_have("memory", "allocate", "skipped")) << "it would leave no handle";
  EXPECT_TRUE(can_have("stream", "create", "twice"));
  EXPECT_FALSE(can_have("stream", "destroy", "twice"));
  EXPECT_TRUE(can_have("event", "query", "early"));
  EXPECT_FALSE(can_have("event", "record", "early"));
  EXPECT_FALSE(can_have("memory", "flush", "short16")) << "coherent memory needs no flush";
}

TEST(Severity, IsBeyondEveryRounding) {
  EXPECT_EQ(largest_honest_error("E1", BP_F32, 1, 9), std::ldexp(4, -23));
  EXPECT_EQ(largest_honest_error("E2", BP_F32, -1, 9), std::ldexp(64, -23));
  EXPECT_EQ(largest_honest_error("E2", BP_BF16, 1, 9), std::ldexp(4, -7));
  EXPECT_EQ(largest_honest_error("R1", BP_F32, 1, 8), std::ldexp(8, -10));
  EXPECT_EQ(largest_honest_error("E2c", BP_F32, 1, 8), std::ldexp(1, -10));
  EXPECT_EQ(largest_number(BP_F16), 65504);
}

TEST(Fates, FollowFromWhatWasSeen) {
  EXPECT_EQ(fate_of({.calls = 3, .met = 2, .changed = 1}, 1), Fate::kKilled);
  EXPECT_EQ(fate_of({.calls = 3, .met = 2, .changed = 1}, 0), Fate::kSurvived);
  EXPECT_EQ(fate_of({.calls = 3, .met = 2, .changed = 0}, 0), Fate::kUnchanged);
  EXPECT_EQ(fate_of({.calls = 3, .met = 0, .changed = 0}, 0), Fate::kNotMet);
  EXPECT_EQ(fate_of({.calls = 3, .met = 2, .changed = 0}, 1), Fate::kUnrelated);
}

TEST(Causes, AreRightIfTheyNameTheFaultOrItsPlace) {
  const auto is_right = [](const char* text, const char* cause) {
    return is_right_cause(*fault_from_text(text), "op.add.f32.random.7.dense", cause, "KERNEL-8");
  };
  EXPECT_TRUE(is_right("add/f32/element/always/small/1", "values"));
  EXPECT_FALSE(is_right("add/f32/element/always/small/1", "tail"));
  EXPECT_TRUE(is_right("add/f32/tail16/always/small/1", "tail"));
  EXPECT_TRUE(is_right("add/f32/element/offset/small/1", "offset"));
  EXPECT_FALSE(is_right("add/f32/element/third/small/1", "offset"));
  EXPECT_FALSE(is_right("add/f32/element/always/small/1", "nan"));
  EXPECT_TRUE(is_right("add/f32/-/always/written_behind/1", "canary"));
  const Fault copy = *fault_from_text("memory.copy/-/-/always/short1/1");
  EXPECT_TRUE(is_right_cause(copy, "memory.copies_add_up", "Fail", ""));
  EXPECT_TRUE(is_right_cause(copy, "stream.programs.1", "order", "STREAM-3"));
  EXPECT_FALSE(is_right_cause(copy, "layout.blocks", "values", "LAYOUT-4"));
}

TEST(Tally, CountsEachFateAndLeavesOutWhatIsAbsent) {
  Tally tally;
  const auto add = [&](Fate fate, bool is_right) {
    Trial trial;
    trial.fate = fate;
    trial.is_right_cause = is_right;
    tally.add(trial);
  };
  add(Fate::kKilled, true);
  add(Fate::kKilled, false);
  add(Fate::kSurvived, false);
  add(Fate::kNotMet, false);
  add(Fate::kAbsent, false);
  EXPECT_EQ(tally.killed.part, 2u);
  EXPECT_EQ(tally.killed.whole, 4u);
  EXPECT_EQ(tally.killed_of_changed.whole, 3u);
  EXPECT_EQ(tally.right_causes.part, 1u);
  EXPECT_EQ(tally.right_causes.whole, 2u);
}

// The bounds are those of Wilson for 9 of 10, in the tables of Newcombe, Two-sided confidence
// intervals for the single proportion, Statistics in Medicine 17, 1998.
TEST(Rates, HaveTheIntervalOfWilson) {
  const Rate rate{9, 10};
  EXPECT_NEAR(rate.low(), 0.5958, 0.0005);
  EXPECT_NEAR(rate.high(), 0.9821, 0.0005);
  EXPECT_EQ(Rate{}.low(), 0);
  EXPECT_EQ(Rate{}.high(), 1);
}

}  // namespace
}  // namespace bp::faults

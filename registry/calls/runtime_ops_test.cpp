// Tests ops that are described at run time: their numbers, their rules, and who is refused.
#include "registry/calls/runtime_ops.hpp"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "backplane/host.h"
#include "registry/tests/runtime_op_desc.hpp"

namespace bp::core {
namespace {

// The frame of TestOp.
struct Args {
  uint32_t struct_size = 0;
  uint32_t flags = 0;
  const bp_tensor* x = nullptr;
  const bp_tensor* weight = nullptr;
  const bp_tensor* y = nullptr;
  uint32_t mode = 1;
  int32_t axis = 0;
};

// A tensor without memory.
struct Shaped {
  explicit Shaped(std::vector<int64_t> own_shape, bp_dtype dtype = BP_F32)
      : shape(std::move(own_shape)), strides(shape.size(), 1) {
    tensor.shape = shape.data();
    tensor.strides = strides.data();
    tensor.ndim = static_cast<uint32_t>(shape.size());
    tensor.dtype = dtype;
  }
  std::vector<int64_t> shape, strides;
  bp_tensor tensor{};
};

std::string refusal_of(const bp_op_desc& desc) {
  OwnedOps owned;
  uint32_t op = 0;
  const std::string refusal = owned.add(desc, &op);
  EXPECT_EQ(op == 0, !refusal.empty());
  return refusal;
}

uint32_t added(OwnedOps& owned, const bp_op_desc& desc) {
  uint32_t op = 0;
  EXPECT_EQ(owned.add(desc, &op), "");
  return op;
}

// ---- Numbers and owners -------------------------------------------------------------------------

// [OP-3]
TEST(RuntimeOps, HaveOneNumberForEachNameThatIsNeverUsedAgain) {
  TestOp first("acme.first"), second("acme.second");
  uint32_t number = 0;
  {
    OwnedOps owned;
    number = added(owned, first.desc());
    EXPECT_GE(number, kFirstRuntimeOp);
    EXPECT_EQ(added(owned, first.desc()), number);
    EXPECT_NE(added(owned, second.desc()), number);
    EXPECT_STREQ(bp_op_name(number), "acme.first");
    EXPECT_EQ(bp_op_from_name("acme.first"), number);
  }
  OwnedOps owned;
  EXPECT_NE(added(owned, TestOp("acme.third").desc()), number);
  EXPECT_EQ(added(owned, first.desc()), number);
}

// [OP-5]
TEST(RuntimeOps, AreNotFoundWithoutAnOwner) {
  TestOp described("acme.orphan");
  OwnedOps one, other;
  const uint32_t op = added(one, described.desc());
  added(other, described.desc());
  const bp_op_desc* desc = nullptr;
  one.end();
  EXPECT_EQ(bp_op_describe(op, &desc), BP_OK) << "the other owner lives";
  other.end();
  EXPECT_EQ(find_op(op), nullptr);
  EXPECT_EQ(bp_op_describe(op, &desc), BP_NOT_FOUND);
  EXPECT_NE(std::string(bp_error_text()).find("acme.orphan: nobody who described this op"),
            std::string::npos)
      << bp_error_text();
  Args args{.struct_size = sizeof(Args)};
  EXPECT_EQ(bp_op_check(op, &args), BP_NOT_FOUND);
  EXPECT_STREQ(bp_op_name(op), "acme.orphan") << "texts of errors still need the name";
  EXPECT_EQ(bp_op_from_name("acme.orphan"), 0u);
  EXPECT_STREQ(desc->name, "acme.orphan") << "a description is never freed";
}

TEST(RuntimeOps, AreListedWhileTheyHaveAnOwner) {
  OwnedOps first, second;
  const uint32_t orphan = added(first, TestOp("acme.listed_first").desc());
  const uint32_t op = added(second, TestOp("acme.listed_second").desc());
  const auto is_listed = [](uint32_t wanted) {
    for (uint32_t next = bp_op_next(0); next != 0; next = bp_op_next(next)) {
      if (next == wanted) return true;
    }
    return false;
  };
  EXPECT_TRUE(is_listed(orphan));
  EXPECT_TRUE(is_listed(op));
  EXPECT_EQ(bp_op_next(op_rows().back().op), bp_op_next(kFirstRuntimeOp - 1));
  first.end();
  EXPECT_FALSE(is_listed(orphan));
  EXPECT_EQ(bp_op_next(orphan), op);
}

TEST(RuntimeOps, AreCopied) {
  OwnedOps owned;
  uint32_t op = 0;
  {
    TestOp described("acme.copied");
    op = added(owned, described.desc());
    described.scribble();
  }
  const bp_op_desc* desc = nullptr;
  ASSERT_EQ(bp_op_describe(op, &desc), BP_OK);
  EXPECT_EQ(desc->op, op);
  EXPECT_STREQ(desc->name, "acme.copied");
  ASSERT_EQ(desc->argument_count, 5u);
  EXPECT_STREQ(desc->arguments[0].name, "x");
  EXPECT_EQ(desc->arguments[0].dtype_count, 4u);
  EXPECT_EQ(desc->arguments[0].dtypes[0], uint32_t{BP_F32});
  EXPECT_STREQ(desc->arguments[3].value_names[1], "fast");
  EXPECT_EQ(desc->arguments[3].default_value.bits, 2u);
  EXPECT_EQ(desc->arguments[4].since, 1u) << "a zero stands for that of the op";
  EXPECT_EQ(desc->infer, nullptr);
}

TEST(RuntimeOps, AreAddedByManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::array<uint32_t, 8> numbers{};
  std::array<OwnedOps, 8> owned;
  for (size_t i = 0; i < numbers.size(); ++i) {
    threads.emplace_back([&, i] { numbers[i] = added(owned[i], TestOp("acme.race").desc()); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const uint32_t number : numbers) EXPECT_EQ(number, numbers[0]);
}

// ---- Descriptions of one name -------------------------------------------------------------------

// [OP-4]
TEST(RuntimeOps, GrowByADescriptionThatExtendsTheirs) {
  TestOp old("acme.grows"), grown("acme.grows");
  grown.append_bias();
  OwnedOps owned;
  const uint32_t op = added(owned, old.desc());
  EXPECT_EQ(find_op(op)->frame_size_bytes, 40u);
  EXPECT_EQ(added(owned, grown.desc()), op);
  EXPECT_EQ(find_op(op)->frame_size_bytes, 48u);
  EXPECT_EQ(find_op(op)->size_in(1), 40u);
  EXPECT_EQ(added(owned, old.desc()), op) << "the longer one serves also where it came first";
  EXPECT_EQ(find_op(op)->frame_size_bytes, 48u);
  owned.end();
  EXPECT_EQ(added(owned, old.desc()), op);
  EXPECT_EQ(find_op(op)->revision, 2u);
  Shaped x({2, 3}), weight({3, 4});
  Args args{.struct_size = 40, .x = &x.tensor, .weight = &weight.tensor};
  bp_op_output y{};
  uint32_t count = 0;
  EXPECT_EQ(bp_op_infer(op, &args, 1, &y, &count), BP_OK)
      << "a frame of revision 1: " << bp_error_text();
}

// [OP-4]
TEST(RuntimeOps, HaveOneMeaningForEverAlsoAfterTheLastUnload) {
  TestOp first("acme.fixed"), other("acme.fixed"), longer("acme.fixed"), values("acme.fixed");
  {
    OwnedOps owned;
    added(owned, first.desc());
  }
  other.arguments[1].shape_rule = "x.shape";
  EXPECT_EQ(refusal_of(other.desc()),
            "acme.fixed has another description: shape_rule of weight differs");
  longer.append_bias();
  longer.arguments[5].since = 1;
  longer.revision = 1;
  EXPECT_EQ(refusal_of(longer.desc()),
            "acme.fixed has another description: only one of them has bias in revision 1");
  values.value_names[0] = "slow";
  EXPECT_EQ(refusal_of(values.desc()),
            "acme.fixed has another description: value_names of mode differs");
  first.arguments[1].shape_rule = "[ x.shape[ -1 ] , weight.shape[1]]";
  EXPECT_EQ(refusal_of(first.desc()), "") << "spaces have no meaning";
}

// ---- Refusals -----------------------------------------------------------------------------------

TEST(RuntimeOps, AreRefusedInWords) {
  const struct {
    void (*bend)(TestOp&);
    std::string words;
  } rows[] = {
      {[](TestOp& o) { o.name = "swiglu"; }, "its name is swiglu, not vendor.name"},
      {[](TestOp& o) { o.frame_size_bytes = 41; }, "frame_size_bytes is 41"},
      {[](TestOp& o) { o.frame_size_bytes = 520; }, "allowed are multiples of 8 up to 512"},
      {[](TestOp& o) { o.arguments.clear(); }, "it has 0 arguments"},
      {[](TestOp& o) { o.arguments[0].kind = 99; }, "x: its kind is 99, which this host does not"},
      {[](TestOp& o) { o.arguments[0].name = "X"; }, "argument 0 is called X"},
      {[](TestOp& o) { o.arguments[1].name = "x"; }, "x: two arguments have this name"},
      {[](TestOp& o) { o.arguments[1].offset_bytes = 8; },
       "weight: offset_bytes is 8; allowed is a multiple of 8 behind the argument before"},
      {[](TestOp& o) { o.arguments[4].offset_bytes = 40; }, "axis: offset_bytes is 40"},
      {[](TestOp& o) { o.arguments[0].since = 2; }, "x: since is 2; allowed are 1"},
      {[](TestOp& o) { o.arguments[0].dtype_rule = nullptr; }, "x: a tensor needs a dtype_rule"},
      {[](TestOp& o) { o.arguments[0].dtype_rule = "f33"; }, "x: there is no dtype 'f33'"},
      {[](TestOp& o) { o.arguments[0].dtype_rule = "like(z)"; }, "x: 'z' is no tensor of this op"},
      {[](TestOp& o) { o.arguments[0].dtype_rule = "like(y)"; }, "its dtype follows from itself"},
      {[](TestOp& o) { o.arguments[2].shape_rule = nullptr; }, "y: an output needs a shape_rule"},
      {[](TestOp& o) { o.arguments[2].shape_rule = "x.shape[0]"; },
       "y: shape_rule \"x.shape[0]\" is no shape"},
      {[](TestOp& o) { o.arguments[2].shape_rule = "x.shape + [wait]"; },
       "y: shape_rule \"x.shape + [wait]\", column 12: 'wait' is no argument of this op"},
      {[](TestOp& o) { o.arguments[2].shape_rule = "spread(x.shape)"; },
       "column 1: there is no function 'spread'"},
      {[](TestOp& o) { o.arguments[2].shape_rule = "[x.ndim"; }, "']' is expected"},
      {[](TestOp& o) { o.arguments[0].shape_rule = "y.shape"; },
       "reads y, an output whose shape is not \"given\""},
      {[](TestOp& o) { o.arguments[2].may_alias = 4; }, "may_alias has bit 2"},
      {[](TestOp& o) { o.value_names[1] = nullptr; }, "mode: value 1 has no name"},
      {[](TestOp& o) { o.arguments[3].default_text = "quick"; },
       "its default is none of its values"},
      {[](TestOp& o) { o.arguments[3].first_value = 2; }, "first_value is 2; it must be 0 or 1"},
      {[](TestOp& o) { o.value_names[1] = "exact"; }, "mode: two of its values are called exact"},
      {[](TestOp& o) { o.arguments[0].dtype_rule = "set(f32, f16, f32)"; },
       "x: its set of dtypes has f32 twice"},
      {[](TestOp& o) {
         o.arguments[2].dtype_rule = "float";
         o.arguments[2].default_dtype = "i32";
       },
       "y: its default_dtype is i32, which is none of its dtypes"},
      {[](TestOp& o) { o.arguments[4].at_most = "3"; }, "axis: it has at_most and below"},
      {[](TestOp& o) { o.arguments[4].below = "-1"; }, "axis: its bounds allow no number"},
      {[](TestOp& o) {
         o.arguments[4].below = "3";
         o.arguments[4].default_text = "3";
       },
       "axis: its default is outside of its bounds"},
      {[](TestOp& o) {
         o.append_bias();
         o.arguments[5] = test_argument("eps", BP_ARGUMENT_F64, 40, nullptr, nullptr);
         o.arguments[5].since = 2;
         o.arguments[5].at_least = "0.5";
       },
       "eps: its bounds forbid 0, which older callers give"},
      {[](TestOp& o) { o.arguments[4].below = "x"; }, "'.shape', '.ndim' or '.dtype' is expected"},
      {[](TestOp& o) { o.arguments[0].struct_size = 24; }, "argument 0: struct_size is 24"},
  };
  for (const auto& row : rows) {
    TestOp bent("acme.bent");
    row.bend(bent);
    const std::string refusal = refusal_of(bent.desc());
    EXPECT_NE(refusal.find(row.words), std::string::npos) << row.words << "\n  but: " << refusal;
  }
  TestOp longer("acme.bent");
  bp_op_desc newer[2] = {longer.desc()};
  newer[0].struct_size = sizeof(newer);
  EXPECT_NE(refusal_of(newer[0]), "never") << "a tail of zeros is legal";
  std::memset(newer + 1, 1, sizeof(newer[1]));
  EXPECT_NE(refusal_of(newer[0]).find("this host cannot read byte"), std::string::npos);
}

// ---- Checks of frames ---------------------------------------------------------------------------

struct Checked : testing::Test {
  TestOp described{"acme.checked"};
  OwnedOps owned;
  const uint32_t op = added(owned, described.desc());
  Shaped x{{5, 2, 3}}, weight{{3, 4}};
  Args args{.struct_size = sizeof(Args), .x = &x.tensor, .weight = &weight.tensor};

  std::string refusal() {
    bp_op_output y{};
    uint32_t count = 0;
    return bp_op_infer(op, &args, 1, &y, &count) == BP_OK ? "" : bp_error_text();
  }
};

TEST_F(Checked, InferShapesByRules) {
  bp_op_output y{};
  uint32_t count = 0;
  ASSERT_EQ(bp_op_infer(op, &args, 1, &y, &count), BP_OK) << bp_error_text();
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(y.dtype, uint32_t{BP_F32});
  ASSERT_EQ(y.ndim, 3u);
  EXPECT_EQ(y.shape[0], 5);
  EXPECT_EQ(y.shape[1], 2);
  EXPECT_EQ(y.shape[2], 4);
}

TEST_F(Checked, AreRefusedByRules) {
  args.x = nullptr;
  EXPECT_EQ(refusal(), "acme.checked: x is NULL; allowed: a tensor");
  Shaped whole({2, 3}, BP_I32), narrow({3, 4}, BP_BF16), other({2, 4});
  args.x = &whole.tensor;
  EXPECT_EQ(refusal(), "acme.checked: x is i32; allowed: f32, f64, f16, bf16");
  args.x = &x.tensor;
  args.weight = &narrow.tensor;
  EXPECT_EQ(refusal(), "acme.checked: weight is bf16; allowed: f32");
  args.weight = &other.tensor;
  EXPECT_NE(refusal().find("acme.checked: weight has shape (2, 4); allowed: (3, 4)"),
            std::string::npos)
      << refusal();
  args.weight = &x.tensor;
  EXPECT_NE(refusal().find("acme.checked: weight has"), std::string::npos) << refusal();
  args.weight = &weight.tensor;
  args.mode = 3;
  EXPECT_NE(refusal().find("acme.checked: mode is 3; allowed: 1 (exact), 2 (fast)"),
            std::string::npos)
      << refusal();
  args.mode = 1;
  args.axis = 3;
  EXPECT_EQ(refusal(), "acme.checked: axis is 3; allowed: 0 <= axis < 3");
  args.axis = 0;
  args.flags = 1;
  EXPECT_EQ(refusal(), "acme.checked: flags is 1; allowed: 0");
}

TEST(RuntimeOps, InferByTheFunctionOfALivingOwner) {
  TestOp described("acme.inferred"), same("acme.inferred");
  const auto infer = [](void* state, const void*, uint32_t count, bp_op_output* outputs) {
    EXPECT_EQ(count, 1u);
    outputs[0].ndim = 1;
    outputs[0].shape[0] = *static_cast<int64_t*>(state);
    return bp_status{BP_OK};
  };
  int64_t seven = 7, eight = 8;
  described.arguments[2].shape_rule = same.arguments[2].shape_rule = nullptr;
  described.infer = same.infer = infer;
  described.state = &seven;
  same.state = &eight;
  OwnedOps first, second;
  const uint32_t op = added(first, described.desc());
  added(second, same.desc());
  Shaped x({2, 3}), weight({3, 4});
  Args args{.struct_size = sizeof(Args), .x = &x.tensor, .weight = &weight.tensor};
  bp_op_output y{};
  uint32_t count = 0;
  ASSERT_EQ(bp_op_infer(op, &args, 1, &y, &count), BP_OK) << bp_error_text();
  EXPECT_EQ(y.shape[0], 8) << "the owner that came last";
  second.end();
  ASSERT_EQ(bp_op_infer(op, &args, 1, &y, &count), BP_OK) << bp_error_text();
  EXPECT_EQ(y.shape[0], 7);
  seven = -1;
  EXPECT_EQ(bp_op_infer(op, &args, 1, &y, &count), BP_INTERNAL);
  EXPECT_NE(std::string(bp_error_text()).find("no shape that a tensor can have"),
            std::string::npos);
}

// ---- Programs -----------------------------------------------------------------------------------

TEST(RuntimeOps, OfAProgramLastUntilItsRegistryEnds) {
  TestOp good("acme.program"), bad("program");
  bp_op_desc descs[] = {good.desc(), bad.desc()};
  bp_registry* registry = nullptr;
  ASSERT_EQ(bp_registry_create(nullptr, &registry), BP_OK);
  uint32_t ops[2] = {};
  bp_add_result results[2] = {};
  ASSERT_EQ(bp_registry_add_ops(registry, 2, descs, sizeof(bp_op_desc), ops, results), BP_OK);
  EXPECT_EQ(results[0].outcome, uint32_t{BP_ADD_ACCEPTED});
  EXPECT_EQ(results[1].outcome, uint32_t{BP_ADD_REJECTED});
  EXPECT_EQ(std::string(results[1].reason).find("its name is program"), 0u) << results[1].reason;
  EXPECT_EQ(ops[1], 0u);
  EXPECT_EQ(bp_op_from_name("acme.program"), ops[0]);
  ASSERT_EQ(bp_registry_destroy(registry), BP_OK);
  EXPECT_EQ(bp_op_from_name("acme.program"), 0u);
}

}  // namespace
}  // namespace bp::core

// Tests programs as the host gives them, valid and invalid, and as words.
#include "backplane/shell/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backends/shell/test_program.hpp"
#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

constexpr float kData[] = {1, 2, 3, 4};

std::string failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const StatusError& e) {
    return std::to_string(e.status()) + " " + e.what();
  }
  return "none";
}

std::string with_status(bp_status status, const std::string& text) {
  return std::to_string(status) + " " + text;
}

// t = x + c; y = -t
struct Good : ProgramMaker {
  Good() {
    values[c].data = kData;
    add_add(x, c, t);
    add_neg(t, y);
  }
  std::string failure() {
    return failure_of([&] { Program{program()}; });
  }

  const uint32_t x = add_value(BP_VALUE_INPUT), c = add_value(BP_VALUE_CONSTANT),
                 t = add_value(BP_VALUE_TEMPORARY), y = add_value(BP_VALUE_OUTPUT);
};

std::vector<uint64_t> words_of(const Program& program) {
  std::vector<uint64_t> words;
  program.write_to(words, "write");
  return words;
}

TEST(Program, OwnsWhatTheHostHandsIn) {
  Good maker;
  std::vector<float> data(kData, kData + 4);
  std::vector<int64_t> shape{2, 2}, strides{1, 2};
  bp_program_value& x = maker.values[maker.x];
  x.shape = shape.data();
  x.strides = strides.data();
  x.ndim = 2;
  maker.values[maker.c].data = data.data();
  const Program program(maker.program());
  data.assign(4, 9);
  shape.assign(2, 9);
  strides.assign(2, 9);
  ASSERT_EQ(program.values.size(), 4u);
  EXPECT_EQ(program.values[0].shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(program.values[0].strides, (std::vector<int64_t>{1, 2}));
  EXPECT_TRUE(std::ranges::equal(program.values[1].data, std::as_bytes(std::span(kData))));
  EXPECT_EQ(program.values[1].size_bytes(), sizeof(kData));
  EXPECT_TRUE(program.values[0].is_argument() && program.values[3].is_argument());
  EXPECT_FALSE(program.values[1].is_argument() || program.values[2].is_argument());
  ASSERT_EQ(program.nodes.size(), 2u);
  EXPECT_EQ(program.nodes[1].frame.op(), uint32_t{BP_OP_NEG});
  EXPECT_EQ(program.nodes[1].values, (std::vector<uint32_t>{2, 3}));
}

TEST(Program, IsRowMajorWhereTheHostGivesNoStrides) {
  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT, {2, 0, 3, 4}),
                 y = maker.add_value(BP_VALUE_OUTPUT, {});
  maker.add_neg(y, y);
  const Program program(maker.program());
  EXPECT_EQ(program.values[x].strides, (std::vector<int64_t>{12, 12, 4, 1}));
  EXPECT_EQ(program.values[x].size_bytes(), 0u);
  EXPECT_EQ(program.values[y].size_bytes(), 4u);
}

TEST(Program, KnowsItsNodesThatAreInPlace) {
  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), y = maker.add_value(BP_VALUE_OUTPUT);
  maker.add_add(x, x, y);
  maker.add_add(x, y, y);
  const auto add = bp_add_args{.a = maker.whole(x), .y = maker.whole(y)};
  maker.add_node(BP_OP_ADD, add, {x, BP_NO_VALUE, y});
  const Program program(maker.program());
  EXPECT_FALSE(program.nodes[0].is_in_place()) << "the same input twice";
  EXPECT_TRUE(program.nodes[1].is_in_place());
  EXPECT_FALSE(program.nodes[2].is_in_place());
}

// ---- What is refused ----------------------------------------------------------------------------

struct Wrong {
  std::function<void(Good&)> make;
  bp_status status;
  const char* text;  // The beginning of the error text.
};

void expect_refused(const std::vector<Wrong>& all) {
  for (const Wrong& wrong : all) {
    Good maker;
    ASSERT_EQ(maker.failure(), "none");
    wrong.make(maker);
    const std::string want = with_status(wrong.status, wrong.text);
    EXPECT_EQ(maker.failure().substr(0, want.size()), want);
  }
}

TEST(Program, RefusesWrongValues) {
  static constexpr int64_t kNegative[] = {-4}, kTwo[] = {2}, kHuge[] = {int64_t{1} << 62};
  const auto value = [](auto change) { return [=](Good& g) { change(g.values[g.t]); }; };
  using Value = bp_program_value;
  expect_refused({
      {value([](Value& v) { v.struct_type = BP_STRUCT_PROGRAM; }), BP_INVALID_ARGUMENT,
       "compile: desc: struct_type is 29, not 30"},
      {value([](Value& v) { v.struct_size = 8; }), BP_INCOMPATIBLE, "compile: desc: at byte 8"},
      {value([](Value& v) { v.role = 0; }), BP_INVALID_ARGUMENT, "program: value 2: role is 0"},
      {value([](Value& v) { v.role = 5; }), BP_INVALID_ARGUMENT, "program: value 2: role is 5"},
      {value([](Value& v) { v.reserved = 1; }), BP_INVALID_ARGUMENT, "program: value 2: role is 3"},
      {value([](Value& v) { v.ndim = BP_MAX_RANK + 1; }), BP_INVALID_ARGUMENT,
       "program: value 2: ndim is "},
      {value([](Value& v) { v.ndim = UINT32_MAX; }), BP_INVALID_ARGUMENT,
       "program: value 2: ndim is 4294967295"},
      {value([](Value& v) { v.shape = nullptr; }), BP_INVALID_ARGUMENT,
       "program: value 2: ndim is 1, or shape is NULL"},
      {value([](Value& v) { v.shape = kNegative; }), BP_INVALID_ARGUMENT,
       "program: value 2: an extent is negative"},
      {value([](Value& v) { v.shape = kHuge; }), BP_INVALID_ARGUMENT,
       "program: value 2: it is too large"},
      {value([](Value& v) { v.struct_size = sizeof(Value) + 8; }), BP_INVALID_ARGUMENT,
       "program: value_stride_bytes is 96, and one of its items has a struct_size of 104"},
      {value([](Value& v) { v.strides = kTwo; }), BP_INVALID_ARGUMENT,
       "program: value 2: a temporary or constant must be row-major"},
      {value([](Value& v) { v.dtype = BP_I4; }), BP_UNSUPPORTED,
       "program: value 2: dtype 2 is not served"},
      {value([](Value& v) { v.dtype = 999; }), BP_UNSUPPORTED, "program: value 2: dtype 999"},
      {[](Good& g) { g.values[g.c].data = nullptr; }, BP_INVALID_ARGUMENT,
       "program: value 1: a constant has no data, no buffer and no key"},
  });
}

// The frame of neg as a later revision may have it.
struct LongerNeg {
  bp_neg_args known;
  uint64_t later;
};

TEST(Program, RefusesWrongNodes) {
  static bp_neg_args tiny{.struct_size = 4}, huge{.struct_size = 4097};
  const auto node = [](auto change) { return [=](Good& g) { change(g.nodes[1]); }; };
  using Node = bp_program_node;
  expect_refused({
      {node([](Node& n) { n.struct_type = 0; }), BP_INVALID_ARGUMENT,
       "compile: desc: struct_type is 0, not 31"},
      {node([](Node& n) { n.args = nullptr; }), BP_INVALID_ARGUMENT,
       "program: node 1: args is NULL"},
      {node([](Node& n) { n.op = 0; }), BP_UNSUPPORTED, "program: node 1: op 0 is not known"},
      {node([](Node& n) { n.op = 99999; }), BP_UNSUPPORTED, "program: node 1: op 99999"},
      {node([](Node& n) { n.reserved = 2; }), BP_INVALID_ARGUMENT,
       "program: node 1: reserved is not 0"},
      {node([](Node& n) { n.args = &tiny; }), BP_INCOMPATIBLE,
       "program: node 1: the frame has 4 bytes; 8 to 4096 are allowed"},
      {node([](Node& n) { n.args = &huge; }), BP_INCOMPATIBLE,
       "program: node 1: the frame has 4097 bytes"},
      {node([](Node& n) { n.value_count = 1; }), BP_INVALID_ARGUMENT,
       "program: node 1: y: a tensor and its value are given together"},
      {[](Good& g) {
         static uint32_t names[3];
         std::copy_n(g.nodes[1].values, 2, names);
         names[2] = 0;
         g.nodes[1].values = names;
         g.nodes[1].value_count = 3;
       },
       BP_INVALID_ARGUMENT, "program: node 1: it names 3 values, and the frame has 2 tensors"},
      {node([](Node& n) { n.values = nullptr; }), BP_INVALID_ARGUMENT,
       "program: node 1: values is NULL"},
  });
}

// A host whose frame has grown gives zero for what this build does not know, and names no value.
TEST(Program, TakesALongerFrameThatGivesNothingMore) {
  Good good;
  static LongerNeg frame;
  frame = {.known = *static_cast<const bp_neg_args*>(good.nodes[1].args), .later = 0};
  frame.known.struct_size = sizeof(frame);
  static uint32_t names[3];
  std::copy_n(good.nodes[1].values, 2, names);
  names[2] = BP_NO_VALUE;
  good.nodes[1].args = &frame;
  good.nodes[1].values = names;
  good.nodes[1].value_count = 3;
  const Program program(good.program());
  EXPECT_EQ(program.nodes[1].values.size(), 2u);
  EXPECT_EQ(*static_cast<const uint32_t*>(program.nodes[1].frame.data()), sizeof(bp_neg_args));
}

TEST(Program, RefusesNodesWhoseValuesAreWrong) {
  expect_refused({
      {[](Good& g) { g.names[1][0] = 4; }, BP_INVALID_ARGUMENT,
       "program: node 1: x: there is no such value"},
      {[](Good& g) { g.names[1][1] = BP_NO_VALUE; }, BP_INVALID_ARGUMENT,
       "program: node 1: y: a tensor and its value are given together"},
      {[](Good& g) {
         g.add_node(BP_OP_NEG, bp_neg_args{.x = g.whole(g.t)}, {g.t, g.y});
       },
       BP_INVALID_ARGUMENT, "program: node 2: y: a tensor and its value are given together"},
      {[](Good& g) { g.names[1][1] = g.x; }, BP_INVALID_ARGUMENT,
       "program: node 1: y: it is written, and value 0 is an input or a constant"},
      {[](Good& g) { g.names[1][1] = g.c; }, BP_INVALID_ARGUMENT,
       "program: node 1: y: it is written, and value 1 is an input or a constant"},
      {[](Good& g) { std::swap(g.nodes[0], g.nodes[1]); }, BP_INVALID_ARGUMENT,
       "program: node 0: x: value 2 is read before it is written"},
      {[](Good& g) {  // Each of two nodes reads what the other writes.
         const uint32_t u = g.add_value(BP_VALUE_TEMPORARY), v = g.add_value(BP_VALUE_TEMPORARY);
         g.add_neg(u, v);
         g.add_neg(v, u);
       },
       BP_INVALID_ARGUMENT, "program: node 2: x: value 4 is read before it is written"},
      {[](Good& g) { g.add_add(g.t, g.x, g.add_value(BP_VALUE_INPUT)); }, BP_INVALID_ARGUMENT,
       "program: node 2: y: it is written, and value 4 is an input"},
  });
}

TEST(Program, RefusesViewsThatLeaveTheirValue) {
  const auto failure = [](std::vector<int64_t> shape, uint64_t byte_offset, int64_t stride = 1) {
    Good g;
    bp_tensor* const view = g.view(std::move(shape), byte_offset);
    const int64_t strides[] = {stride, stride};
    view->strides = strides;
    g.add_node(BP_OP_NEG, bp_neg_args{.x = view, .y = g.whole(g.y)}, {g.t, g.y});
    return g.failure();
  };
  EXPECT_EQ(failure({4}, 0), "none");
  EXPECT_EQ(failure({3}, 4), "none");
  EXPECT_EQ(failure({2}, 4, 2), "none");
  EXPECT_EQ(failure({4}, 12, -1), "none");
  EXPECT_EQ(failure({0}, 400), "none") << "nothing is touched";
  const std::string refused =
      with_status(BP_INVALID_ARGUMENT, "program: node 2: x: it leaves value 2");
  EXPECT_EQ(failure({5}, 0), refused);
  EXPECT_EQ(failure({4}, 1), refused);
  EXPECT_EQ(failure({2}, 4, 3), refused);
  EXPECT_EQ(failure({4}, 8, -1), refused);
  EXPECT_EQ(failure({1}, UINT64_MAX - 3), refused);
  EXPECT_EQ(failure({1}, INT64_MAX), refused);
  EXPECT_EQ(failure({int64_t{1} << 62}, 0), refused) << "its bytes wrap to 0";
}

TEST(Program, RefusesAHeadThatIsWrong) {
  EXPECT_EQ(failure_of([] { Program{nullptr}; }),
            with_status(BP_INVALID_ARGUMENT, "program: data is NULL"));
  const auto failure = [](void (*change)(bp_program&)) {
    Good maker;
    bp_program* const program = maker.program();
    change(*program);
    return failure_of([&] { Program{program}; });
  };
  const std::string empty =
      with_status(BP_INVALID_ARGUMENT, "program: it has no values or no nodes");
  EXPECT_EQ(failure([](bp_program& p) { p.values = nullptr; }), empty);
  EXPECT_EQ(failure([](bp_program& p) { p.nodes = nullptr; }), empty);
  EXPECT_EQ(failure([](bp_program& p) { p.node_count = 0; }), empty);
  const auto too_small = [](const std::string& text) {
    return with_status(BP_INVALID_ARGUMENT, "program: " + text);
  };
  EXPECT_EQ(failure([](bp_program& p) { p.value_stride_bytes = 8; }),
            too_small("value_stride_bytes is smaller than the struct of a value"));
  EXPECT_EQ(failure([](bp_program& p) { p.node_stride_bytes = 0; }),
            too_small("node_stride_bytes is smaller than the struct of a node"));
  EXPECT_EQ(failure([](bp_program& p) { p.struct_type = 3; }),
            with_status(BP_INVALID_ARGUMENT, "compile: desc: struct_type is 3, not 29"));
  EXPECT_EQ(failure([](bp_program& p) { p.struct_size = 24; }),
            with_status(BP_INCOMPATIBLE,
                        "compile: desc: at byte 24 it differs from what this backend can read"));
}

// ---- Other builds, and words --------------------------------------------------------------------

TEST(Program, TakesLongerItemsOfANewerHostIfWhatIsNewIsNotGiven) {
  struct NewerValue {
    bp_program_value value;
    uint64_t extra;
  };
  Good maker;
  std::vector<NewerValue> newer;
  for (bp_program_value& value : maker.values) {
    value.struct_size = sizeof(NewerValue);
    newer.push_back({value, 0});
  }
  bp_program* const program = maker.program();
  program->values = &newer[0].value;
  program->value_stride_bytes = sizeof(NewerValue);
  EXPECT_EQ(Program(program).values[3].role, bp_value_role{BP_VALUE_OUTPUT});
  newer[2].extra = 1;
  EXPECT_EQ(failure_of([&] { Program{program}; }),
            with_status(BP_INCOMPATIBLE,
                        "compile: desc: at byte 96 it differs from what this backend can read"));
}

TEST(Program, IsTheSameAfterItWasReadFromWords) {
  Good maker;
  const uint8_t odd[] = {1, 2, 3, 4, 5};
  const int64_t five[] = {5}, strides[] = {3};
  const uint32_t bytes = maker.add_value(BP_VALUE_CONSTANT, {5}, BP_U8);
  maker.values[bytes].data = odd;
  maker.values[bytes].shape = five;
  maker.values[maker.x].strides = strides;
  const Program program(maker.program());
  std::vector<uint64_t> words{7};
  program.write_to(words, "write");
  const size_t end = words.size();
  words.push_back(7);
  size_t position = 1;
  const Program again(words, position);
  EXPECT_EQ(position, end);
  EXPECT_EQ(words_of(again), words_of(program));
  ASSERT_EQ(again.values.size(), 5u);
  EXPECT_EQ(again.values[0].strides[0], 3);
  EXPECT_EQ(again.values[2].role, bp_value_role{BP_VALUE_TEMPORARY});
  EXPECT_EQ(again.values[4].dtype, bp_dtype{BP_U8});
  ASSERT_EQ(again.values[4].data.size(), 5u);
  EXPECT_EQ(again.values[4].data[4], std::byte{5});
  ASSERT_EQ(again.nodes.size(), 2u);
  EXPECT_EQ(again.nodes[0].values, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(again.nodes[1].frame.tensors()[1]->shape[0], 4);
}

TEST(Program, IsRefusedWhereItsWordsEndEarly) {
  Good maker;
  const std::vector<uint64_t> words = words_of(Program(maker.program()));
  const std::string damaged = with_status(BP_INCOMPATIBLE, "deserialize: ");
  for (size_t size = 0; size < words.size(); ++size) {
    const std::vector<uint64_t> part(words.begin(), words.begin() + static_cast<long>(size));
    size_t position = 0;
    const std::string failure = failure_of([&] { Program(part, position); });
    EXPECT_EQ(failure.substr(0, damaged.size()), damaged) << size << " of " << words.size();
  }
}

// Any words give a program or BP_INCOMPATIBLE, and never a crash.
TEST(Program, IsAProgramOrIncompatibleWhateverItsWordsSay) {
  Good maker;
  const bp_tensor* const xs[] = {maker.whole(maker.t), maker.whole(maker.x)};
  const uint32_t z = maker.add_value(BP_VALUE_OUTPUT, {8});
  maker.add_node(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = xs, .y = maker.whole(z)},
                 {maker.t, maker.x, z});
  const std::vector<uint64_t> words = words_of(Program(maker.program()));
  for (size_t i = 0; i < words.size(); ++i) {
    for (const uint64_t word : {uint64_t{0}, uint64_t{1}, uint64_t{7}, uint64_t{100}, UINT64_MAX,
                                uint64_t{1} << 62, words[i] ^ 2}) {
      std::vector<uint64_t> changed = words;
      changed[i] = word;
      size_t position = 0;
      const std::string failure = failure_of([&] { Program(changed, position); });
      EXPECT_TRUE(failure == "none" || failure[0] == '7') << i << " " << word << " " << failure;
    }
  }
}

TEST(Program, IsRefusedWhereItsWordsAreCountsOfTooMuch) {
  Good maker;
  const std::vector<uint64_t> words = words_of(Program(maker.program()));
  const auto with = [&](size_t place, uint64_t old, uint64_t word) {
    std::vector<uint64_t> changed = words;
    EXPECT_EQ(changed[place], old);
    changed[place] = word;
    size_t position = 0;
    return failure_of([&] { Program(changed, position); });
  };
  // The words are the counts of extents and values, then role, dtype, counts of shape and strides,
  // shape, strides, whether there is a layout, and sizes of key and data of the first value, and
  // then the second value.
  const std::string count = with_status(BP_INCOMPATIBLE, "deserialize: a count is damaged");
  EXPECT_EQ(with(0, 0, UINT64_MAX), count);
  EXPECT_EQ(with(1, 4, UINT64_MAX), count);
  EXPECT_EQ(with(4, 1, uint64_t{1} << 60), count);
  EXPECT_EQ(with(8, 0, 2), with_status(BP_INCOMPATIBLE, "deserialize: a layout is damaged"));
  EXPECT_EQ(with(9, 0, UINT64_MAX),
            with_status(BP_INCOMPATIBLE, "deserialize: a constant is damaged"));
  const size_t nodes = 2 + 4 * 9 + 2;
  EXPECT_EQ(with(nodes, 2, words.size() + 1), count);
  std::vector<uint64_t> longer = words;
  ASSERT_EQ(longer[nodes + 1]++, 3u);
  longer.insert(longer.begin() + nodes + 2,
                0);  // The node names one value more than it has tensors.
  size_t position = 0;
  EXPECT_EQ(failure_of([&] { Program(longer, position); }),
            with_status(BP_INCOMPATIBLE, "deserialize: a node is damaged"));
}

}  // namespace
}  // namespace bp

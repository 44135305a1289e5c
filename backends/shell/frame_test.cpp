// Tests copies of argument frames with every kind of member, of frames longer and shorter than
// known, and as words.
#include "backplane/shell/frame.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backplane/ops.h"
#include "backplane/shell/boundary.hpp"

namespace bp {
namespace {

// A tensor with a shape of its own.
struct Tensor {
  Tensor(std::vector<int64_t> its_shape, std::vector<int64_t> its_strides, uint64_t offset = 0)
      : shape(std::move(its_shape)),
        strides(std::move(its_strides)),
        tensor{.byte_offset = offset,
               .shape = shape.data(),
               .strides = strides.data(),
               .ndim = static_cast<uint32_t>(shape.size()),
               .dtype = BP_F32} {}
  Tensor(const Tensor&) = delete;

  std::vector<int64_t> shape, strides;
  bp_tensor tensor;
};

template <typename Args>
OwnedFrame own(uint32_t op, Args args) {
  args.struct_size = sizeof(Args);
  return OwnedFrame(op, &args, sizeof(Args));
}

template <typename Args>
const Args& args_of(const OwnedFrame& frame) {
  return *static_cast<const Args*>(frame.data());
}

// Returns the failure of `body` as status and text.
template <typename Body>
std::string failure_of(Body&& body) {
  try {
    body();
  } catch (const StatusError& e) {
    return std::to_string(e.status()) + " " + e.what();
  }
  return "none";
}

std::string incompatible(const std::string& text) {
  return std::to_string(BP_INCOMPATIBLE) + " " + text;
}

std::vector<uint64_t> words_of(const OwnedFrame& frame) {
  std::vector<uint64_t> words;
  frame.write_to(words);
  return words;
}

OwnedFrame read(const std::vector<uint64_t>& words) {
  size_t position = 0;
  return OwnedFrame::read_from(words, position);
}

class Frame : public testing::Test {
 protected:
  OwnedFrame cat() {
    const bp_tensor* const xs[] = {&a.tensor, &b.tensor};
    return own(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = xs, .y = &y.tensor, .axis = 1});
  }
  OwnedFrame sum() {
    const int64_t axes[] = {1, 0};
    return own(
        BP_OP_SUM,
        bp_sum_args{.x = &a.tensor, .y = &b.tensor, .axes_count = 2, .axes = axes, .keepdims = 1});
  }
  OwnedFrame gelu(uint32_t approximation, uint32_t size_bytes) {
    const bp_gelu_args args{
        .struct_size = size_bytes, .x = &a.tensor, .y = &y.tensor, .approximation = approximation};
    return OwnedFrame(BP_OP_GELU, &args, size_bytes);
  }

  Tensor a{{2, 3}, {3, 1}, 8}, b{{2, 1}, {1, 1}, 16}, y{{2, 4}, {4, 1}};
};

TEST_F(Frame, KeepsItsOwnCopyOfTensorsListsAndNumbers) {
  const OwnedFrame lists = cat(), numbers = sum();  // The original arrays do not exist any more.
  a.shape = {7, 7};
  b.strides = {9, 9};
  b.tensor.byte_offset = 1;
  const auto& c = args_of<bp_cat_args>(lists);
  ASSERT_EQ(lists.tensors().size(), 3u);
  EXPECT_EQ(c.xs[1], lists.tensors()[1]);
  EXPECT_EQ(c.y, lists.tensors()[2]);
  EXPECT_EQ(c.xs[0]->shape[1], 3);
  EXPECT_EQ(c.xs[1]->strides[0], 1);
  EXPECT_EQ(c.xs[1]->byte_offset, 16u);
  EXPECT_EQ(c.axis, 1);
  const auto& s = args_of<bp_sum_args>(numbers);
  EXPECT_EQ(std::vector<int64_t>(s.axes, s.axes + s.axes_count), (std::vector<int64_t>{1, 0}));
}

TEST_F(Frame, PointsToWhatIsWrittenIntoItsTensorsAndNotThoseOfAClone) {
  const OwnedFrame frame = cat(), clone = frame.clone();
  frame.tensors()[1]->byte_offset = 77;
  EXPECT_EQ(args_of<bp_cat_args>(frame).xs[1]->byte_offset, 77u);
  EXPECT_EQ(args_of<bp_cat_args>(clone).xs[1]->byte_offset, 16u);
}

TEST_F(Frame, SaysOfEachTensorWhatTheSpecDoes) {
  const OwnedFrame add = own(BP_OP_ADD, bp_add_args{.a = &a.tensor, .y = &y.tensor});
  ASSERT_EQ(add.arguments().size(), 3u);
  EXPECT_EQ(add.tensors()[1], nullptr) << "an operand that is a scalar";
  const FrameArgument &x = add.arguments()[0], &operand = add.arguments()[1],
                      &out = add.arguments()[2];
  EXPECT_STREQ(operand.name, "b");
  EXPECT_TRUE(x.is_read && !x.is_written && !x.has_scalar && x.has_free_dtype);
  EXPECT_TRUE(operand.is_read && !operand.is_written && operand.has_scalar);
  EXPECT_FALSE(operand.has_free_dtype) << "it is like(a)";
  EXPECT_TRUE(!out.is_read && out.is_written && !out.has_scalar);
}

TEST_F(Frame, HasTheTensorsOfListsBehindEachOther) {
  const bp_tensor *const params[] = {&a.tensor, &y.tensor}, *const grads[] = {&b.tensor, nullptr};
  const OwnedFrame frame = own(
      BP_OP_SGD_STEP,
      bp_sgd_step_args{
          .params_count = 2, .params = params, .grads_count = 1, .grads = grads, .lr = &y.tensor});
  ASSERT_EQ(frame.tensors().size(), 5u) << "two, one, none, lr and step";
  EXPECT_EQ(frame.tensors()[2]->byte_offset, 16u);
  EXPECT_EQ(frame.tensors()[4], nullptr);
  const std::vector<FrameArgument>& arguments = frame.arguments();
  EXPECT_TRUE(arguments[0].is_first && !arguments[1].is_first && arguments[2].is_first);
  EXPECT_TRUE(arguments[1].is_read && arguments[1].is_written) << "params are in and out";
  EXPECT_STREQ(arguments[3].name, "lr");
}

TEST_F(Frame, NumbersItsArgumentsAlsoBehindAListThatIsEmpty) {
  const bp_tensor* const params[] = {&a.tensor, &y.tensor};
  const OwnedFrame frame =
      own(BP_OP_SGD_STEP, bp_sgd_step_args{.params_count = 2, .params = params, .lr = &y.tensor});
  ASSERT_EQ(frame.arguments().size(), 4u);
  EXPECT_EQ(frame.arguments()[1].index, 0u);
  EXPECT_EQ(frame.arguments()[2].index, 3u) << "behind grads and momentum_buffers";
}

TEST_F(Frame, RefusesWhatPointsNowhere) {
  const bp_tensor* const items[] = {&a.tensor, nullptr};
  const auto cat_failure = [&](const bp_tensor* const* xs) {
    return failure_of([&] { own(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = xs}); });
  };
  const std::string invalid = std::to_string(BP_INVALID_ARGUMENT) + " ";
  EXPECT_EQ(cat_failure(nullptr), invalid + "cat: xs is NULL, and its count is 2");
  EXPECT_EQ(cat_failure(items), invalid + "cat: a tensor of a list is NULL");
  const auto neg_failure = [&](auto change) {
    bp_tensor x = a.tensor;
    change(x);
    return failure_of([&] { own(BP_OP_NEG, bp_neg_args{.x = &x}); });
  };
  const std::string null = invalid + "neg: shape or strides of a tensor are NULL";
  EXPECT_EQ(neg_failure([](bp_tensor& x) { x.shape = nullptr; }), null);
  EXPECT_EQ(neg_failure([](bp_tensor& x) { x.strides = nullptr; }), null);
  EXPECT_EQ(neg_failure([](bp_tensor& x) { x.ndim = UINT32_MAX; }),
            invalid + "neg: the ndim of a tensor is 4294967295; at most 8 is allowed");
}

TEST_F(Frame, KeepsNoLinks) {
  bp_struct_header link{sizeof(link), 77, nullptr};
  a.tensor.next = &link;
  const bp_neg_args args{.x = &a.tensor, .y = &y.tensor};
  EXPECT_EQ(own(BP_OP_NEG, args).tensors()[0]->next, nullptr);
  link.struct_type |= BP_STRUCT_MUST_UNDERSTAND;
  EXPECT_EQ(failure_of([&] { own(BP_OP_NEG, args); }),
            std::to_string(BP_UNSUPPORTED) +
                " neg: a tensor has a link that must be understood, or too many links, and a "
                "capture or program keeps no links");
}

TEST_F(Frame, IsOfAnOpThatThisBuildKnows) {
  const bp_neg_args args{.struct_size = sizeof(args), .x = &a.tensor, .y = &a.tensor};
  EXPECT_EQ(failure_of([&] { OwnedFrame(99999, &args, sizeof(args)); }),
            std::to_string(BP_UNSUPPORTED) + " op 99999 is not known to this build");
  EXPECT_STREQ(op_name(BP_OP_CAT), "cat");
  EXPECT_STREQ(op_name(0), "program");
  EXPECT_EQ(op_name(99999), nullptr);
}

TEST_F(Frame, HasTheMembersOfItsOpInTheirOrder) {
  std::string names;
  for (const FrameMember& member : frame_members(BP_OP_CAT)) {
    EXPECT_EQ(member.op, BP_OP_CAT + 0u);
    if (!member.is_argument()) continue;
    names += std::string(member.name) + (member.is_list() ? " list" : "");
    names += member.is_written() ? " written;" : member.is_read() ? " read;" : ";";
  }
  EXPECT_EQ(names, "xs list read;y written;");
  EXPECT_TRUE(frame_members(99999).empty());
}

TEST_F(Frame, FindsATensorArgumentByItsNumber) {
  const bp_add_args add{.struct_size = sizeof(add), .a = &a.tensor, .y = &y.tensor};
  EXPECT_EQ(tensor_argument(BP_OP_ADD, &add, 0, "ask"), &a.tensor);
  EXPECT_EQ(tensor_argument(BP_OP_ADD, &add, 1, "ask"), nullptr);
  EXPECT_EQ(tensor_argument(BP_OP_ADD, &add, 2, "ask"), &y.tensor);
  EXPECT_EQ(
      failure_of([&] { tensor_argument(BP_OP_ADD, &add, 3, "ask"); }),
      std::to_string(BP_INVALID_ARGUMENT) + " ask: argument is 3, add has 3 tensor arguments");
  const OwnedFrame lists = cat();
  EXPECT_EQ(tensor_argument(BP_OP_CAT, lists.data(), 0, "ask"), nullptr) << "it is a list";
  EXPECT_EQ(tensor_argument(BP_OP_CAT, lists.data(), 1, "ask"), lists.tensors()[2]);
}

TEST_F(Frame, OfAProgramHasTheTensorsOfItsArray) {
  const bp_tensor tensors[] = {a.tensor, y.tensor};
  const OwnedFrame frame = own(0, bp_program_args{.tensors = tensors, .tensor_count = 2});
  ASSERT_EQ(frame.tensors().size(), 2u);
  EXPECT_EQ(frame.tensors()[1], args_of<bp_program_args>(frame).tensors + 1);
  EXPECT_NE(frame.tensors()[1], tensors + 1);
  EXPECT_EQ(frame.tensors()[0]->byte_offset, 8u);
}

// ---- Other builds -------------------------------------------------------------------------------

TEST_F(Frame, OfAnOlderCallerHasZeroInWhatItLacks) {
  constexpr uint32_t kOlder = offsetof(bp_gelu_args, approximation);
  const OwnedFrame frame = gelu(0xBAD, kOlder).fitted(sizeof(bp_gelu_args));
  const auto& args = args_of<bp_gelu_args>(frame);
  EXPECT_EQ(args.struct_size, sizeof(bp_gelu_args));
  EXPECT_EQ(args.approximation, 0u);
  EXPECT_EQ(args.y->shape[1], 4);
  const OwnedFrame oldest = gelu(1, offsetof(bp_gelu_args, y));
  EXPECT_EQ(oldest.tensors().size(), 1u) << "y was not read";
}

TEST_F(Frame, OfANewerCallerIsTakenIfWhatIsNewIsNotGiven) {
  constexpr uint32_t kOlder = offsetof(bp_gelu_args, approximation);
  const OwnedFrame frame = gelu(0, sizeof(bp_gelu_args)).fitted(kOlder);
  EXPECT_EQ(args_of<bp_gelu_args>(frame).struct_size, kOlder);
  ASSERT_EQ(frame.tensors().size(), 2u);
  EXPECT_EQ(args_of<bp_gelu_args>(frame).x, frame.tensors()[0]);
  EXPECT_EQ(
      failure_of([&] { gelu(0x200, sizeof(bp_gelu_args)).fitted(kOlder); }),
      incompatible("gelu: byte 25 of the frame is not zero, and the kernel does not know it"));
}

// ---- Ops that are described at run time ---------------------------------------------------------

bp_op_argument described(const char* name, bp_argument_kind kind, uint32_t offset_bytes,
                         const char* dtype_rule = nullptr) {
  bp_op_argument argument{};
  argument.struct_size = sizeof(argument);
  argument.struct_type = BP_STRUCT_OP_ARGUMENT;
  argument.name = name;
  argument.kind = kind;
  argument.offset_bytes = offset_bytes;
  argument.dtype_rule = dtype_rule;
  return argument;
}

struct DescribedArgs {
  uint32_t struct_size, flags;
  const bp_tensor* x;
  const bp_tensor* b;
  bp_scalar b_scalar;
  uint64_t more_count;
  const bp_tensor* const* more;
  uint64_t axes_count;
  const int64_t* axes;
  int32_t mode;
  uint32_t padding;
  const bp_tensor* y;
};

// A host that knows one op, acme.op, under a number of its own.
struct DescribingHost {
  explicit DescribingHost(uint32_t number) {
    arguments[0].dtype_count = 4;
    desc.name = "acme.op";
    desc.op = number;
    desc.frame_size_bytes = sizeof(DescribedArgs);
    desc.arguments = arguments;
    desc.argument_count = 6;
    desc.argument_stride_bytes = sizeof(bp_op_argument);
    host.self = this;
    host.op_find = [](void* self, const char* name, uint32_t* out_op) -> bp_status {
      const bp_op_desc& its = static_cast<DescribingHost*>(self)->desc;
      if (std::string(name) != its.name) return BP_NOT_FOUND;
      *out_op = its.op;
      return BP_OK;
    };
    host.op_describe = [](void* self, uint32_t op, const bp_op_desc** out_desc) -> bp_status {
      const bp_op_desc& its = static_cast<DescribingHost*>(self)->desc;
      if (op != its.op) return BP_NOT_FOUND;
      *out_desc = &its;
      return BP_OK;
    };
  }
  DescribingHost(const DescribingHost&) = delete;

  bp_op_argument arguments[6] = {
      described("x", BP_ARGUMENT_TENSOR, offsetof(DescribedArgs, x), "float"),
      described("b", BP_ARGUMENT_OPERAND, offsetof(DescribedArgs, b), "like(x)"),
      described("more", BP_ARGUMENT_TENSOR_LIST, offsetof(DescribedArgs, more), "like(x)"),
      described("axes", BP_ARGUMENT_I64_LIST, offsetof(DescribedArgs, axes)),
      described("mode", BP_ARGUMENT_I32, offsetof(DescribedArgs, mode)),
      described("y", BP_ARGUMENT_OUT, offsetof(DescribedArgs, y), "like(x)")};
  bp_op_desc desc{};
  bp_host host{};
};

TEST_F(Frame, OfADescribedOpIsCopiedByItsDescription) {
  const DescribingHost here(65537);
  std::vector<int64_t> axes{2, 0};
  const bp_tensor* more[] = {&b.tensor, &a.tensor};
  DescribedArgs args{.struct_size = sizeof(DescribedArgs),
                     .x = &a.tensor,
                     .b_scalar = {.dtype = BP_I64, .bits = 5},
                     .more_count = 2,
                     .more = more,
                     .axes_count = 2,
                     .axes = axes.data(),
                     .mode = 7,
                     .y = &y.tensor};
  const OwnedFrame frame = OwnedFrame(here.desc, &args, sizeof(args)).clone();
  more[0] = nullptr;
  axes[0] = 9;
  const auto& copy = args_of<DescribedArgs>(frame);
  EXPECT_STREQ(frame.name(), "acme.op");
  EXPECT_EQ(frame.op(), 65537u);
  EXPECT_NE(copy.x, &a.tensor);
  EXPECT_EQ(copy.x->shape[1], a.tensor.shape[1]);
  EXPECT_EQ(copy.b, nullptr);
  EXPECT_EQ(copy.b_scalar.bits, 5u);
  EXPECT_EQ(copy.more[0]->ndim, b.tensor.ndim);
  EXPECT_EQ(copy.axes[0], 2);
  EXPECT_EQ(copy.mode, 7);
  ASSERT_EQ(frame.tensors().size(), 5u);
  EXPECT_EQ(frame.tensors()[4], copy.y);
  EXPECT_TRUE(frame.arguments()[0].has_free_dtype);
  EXPECT_TRUE(frame.arguments()[1].has_scalar);
  EXPECT_EQ(frame.arguments()[1].x, 0u);
  EXPECT_FALSE(frame.arguments()[3].is_first);
  EXPECT_TRUE(frame.arguments()[4].is_written);
}

// [OP-11]
TEST_F(Frame, OfADescribedOpIsReadWhereTheOpHasAnotherNumber) {
  const DescribingHost here(65537), there(70000);
  const bp_tensor* more[] = {&b.tensor};
  const int64_t axes[] = {1};
  const DescribedArgs args{.struct_size = sizeof(DescribedArgs),
                           .x = &a.tensor,
                           .more_count = 1,
                           .more = more,
                           .axes_count = 1,
                           .axes = axes,
                           .mode = 7,
                           .y = &y.tensor};
  const std::vector<uint64_t> words = words_of(OwnedFrame(here.desc, &args, sizeof(args)));
  EXPECT_EQ(words, words_of(OwnedFrame(there.desc, &args, sizeof(args)))) << "no number is in them";
  const auto read = [&](const bp_host* host) {
    size_t position = 0;
    OwnedFrame frame = OwnedFrame::read_from(words, position, host);
    EXPECT_EQ(position, words.size());
    return frame;
  };
  const OwnedFrame frame = read(&there.host);
  EXPECT_EQ(frame.op(), 70000u);
  EXPECT_EQ(args_of<DescribedArgs>(frame).mode, 7);
  EXPECT_EQ(args_of<DescribedArgs>(frame).axes[0], 1);
  EXPECT_EQ(args_of<DescribedArgs>(frame).more[0]->ndim, b.tensor.ndim);
  bp_kernel kernel{};
  kernel.op_name = "acme.op";
  EXPECT_TRUE(frame.is_op_of(kernel));
  kernel.op_name = "acme.other";
  EXPECT_FALSE(frame.is_op_of(kernel));
  const std::string head = "deserialize: the program has the op acme.op, ";
  EXPECT_EQ(failure_of([&] { read(nullptr); }),
            incompatible(head + "which was described at run time, and nobody describes ops here"));
  DescribingHost gone(65537), bent(65537);
  gone.desc.name = "acme.other";
  EXPECT_EQ(failure_of([&] { read(&gone.host); }),
            incompatible(head + "which nobody describes here; load the backend that describes it"));
  bent.arguments[4].kind = BP_ARGUMENT_I64;
  EXPECT_EQ(failure_of([&] { read(&bent.host); }),
            incompatible(head + "whose frame is described in another way here; compile the program "
                                "again"));
  for (size_t k = 0; k < words.size(); ++k) {
    std::vector<uint64_t> cut(words.begin(), words.begin() + static_cast<int64_t>(k));
    size_t position = 0;
    EXPECT_EQ(failure_of([&] { OwnedFrame::read_from(cut, position, &here.host); }),
              incompatible("deserialize: the end is damaged"));
  }
}

// ---- As words -----------------------------------------------------------------------------------

TEST_F(Frame, IsTheSameAfterItWasReadFromWords) {
  for (const OwnedFrame& frame : {cat(), sum(), gelu(2, sizeof(bp_gelu_args)),
                                  own(BP_OP_ADD, bp_add_args{.a = &a.tensor,
                                                 .b_scalar = {.dtype = BP_I64, .bits = 5},
                                                 .y = &y.tensor})}) {
    std::vector<uint64_t> words{1, 2, 3};
    frame.write_to(words);
    const size_t end = words.size();
    words.push_back(4);
    size_t position = 3;
    const OwnedFrame again = OwnedFrame::read_from(words, position);
    EXPECT_EQ(position, end);
    EXPECT_EQ(again.op(), frame.op());
    EXPECT_EQ(words_of(again), words_of(frame)) << op_name(frame.op());
    ASSERT_EQ(again.tensors().size(), frame.tensors().size());
    EXPECT_EQ(again.tensors()[0]->byte_offset, 8u);
    EXPECT_EQ(again.tensors()[0]->shape[1], 3);
  }
}

TEST_F(Frame, IsRefusedWhereItsWordsEndEarly) {
  for (const OwnedFrame& frame : {cat(), sum()}) {
    const std::vector<uint64_t> words = words_of(frame);
    for (size_t size = 0; size < words.size(); ++size) {
      const std::vector<uint64_t> part(words.begin(), words.begin() + static_cast<long>(size));
      EXPECT_EQ(failure_of([&] { read(part); }), incompatible("deserialize: the end is damaged"))
          << size << " of " << words.size();
    }
  }
}

TEST_F(Frame, IsRefusedWhereItsWordsMeanNothing) {
  // The words of cat are op, size, and the frame of struct_size, xs_count, xs, y and axis. Each
  // tensor follows with its byte_offset, dtype, ndim, shape and strides.
  constexpr size_t kCount = 2 + offsetof(bp_cat_args, xs_count) / 8, kRank = 2 + 5 + 2;
  const auto with = [&](size_t place, uint64_t word) {
    std::vector<uint64_t> words = words_of(cat());
    words.at(place) = word;
    return failure_of([&] { read(words); });
  };
  ASSERT_EQ(words_of(cat())[kCount], 2u);
  ASSERT_EQ(words_of(cat())[kRank], 2u);
  EXPECT_EQ(with(0, 0), incompatible("deserialize: a frame is damaged"));
  EXPECT_EQ(with(0, uint64_t{1} << 32), incompatible("deserialize: a frame is damaged"));
  EXPECT_EQ(with(1, 0), incompatible("deserialize: a frame is damaged"));
  EXPECT_EQ(with(1, 4097), incompatible("deserialize: a frame is damaged"));
  EXPECT_EQ(with(kCount, uint64_t{1} << 40),
            incompatible("deserialize: the length of a list is damaged"));
  EXPECT_EQ(with(kCount + 1, 0xDEAD), incompatible("deserialize: a pointer is damaged"));
  EXPECT_EQ(with(kRank, BP_MAX_RANK + 1),
            incompatible("deserialize: the rank of a tensor is damaged"));
}

// ---- Extents ------------------------------------------------------------------------------------

TEST_F(Frame, ExtentReachesFromTheFirstByteToBehindTheLast) {
  const auto extent = [](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    const Extent e = extent_of(Tensor(std::move(shape), std::move(strides)).tensor);
    return std::vector<int64_t>{e.begin, e.end};
  };
  EXPECT_EQ(extent({}, {}), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(extent({2, 3}, {3, 1}), (std::vector<int64_t>{0, 24}));
  EXPECT_EQ(extent({2, 3}, {100, -2}), (std::vector<int64_t>{-16, 404}));
  EXPECT_EQ(extent({5}, {0}), (std::vector<int64_t>{0, 4}));
  EXPECT_EQ(extent({5, 0}, {1, 1}), (std::vector<int64_t>{0, 0}));
  EXPECT_EQ(extent({int64_t{1} << 62}, {1}), (std::vector<int64_t>{0, INT64_MAX}));
  EXPECT_EQ(extent({2, 3}, {INT64_MAX, INT64_MIN}), (std::vector<int64_t>{INT64_MIN, INT64_MAX}));
}

TEST_F(Frame, ExtentInABufferIsRefusedWhereItLeavesTheBuffer) {
  const auto text = [](std::vector<int64_t> shape, std::vector<int64_t> strides, uint64_t offset) {
    Tensor tensor(std::move(shape), std::move(strides));
    tensor.tensor.byte_offset = offset;
    try {
      const Extent e = extent_in_buffer(tensor.tensor, 64, "launch: argument x");
      return std::to_string(e.begin) + " to " + std::to_string(e.end);
    } catch (const StatusError& e) {
      EXPECT_EQ(e.status(), BP_INVALID_ARGUMENT);
      return std::string(e.what());
    }
  };
  const std::string refused = "launch: argument x: its elements are bytes ";
  EXPECT_EQ(text({2, 3}, {3, 1}, 40), "40 to 64");
  EXPECT_EQ(text({2}, {-1}, 4), "0 to 8");
  EXPECT_EQ(text({2, 3}, {3, 1}, 41), refused + "41 to 65 of a buffer of 64");
  EXPECT_EQ(text({2}, {-1}, 3), refused + "-1 to 7 of a buffer of 64");
  const std::string most = std::to_string(INT64_MAX);
  EXPECT_EQ(text({int64_t{1} << 62}, {8}, 8), refused + "8 to " + most + " of a buffer of 64");
  EXPECT_EQ(text({1}, {1}, UINT64_MAX - 3), refused + most + " to " + most + " of a buffer of 64");
}

}  // namespace
}  // namespace bp

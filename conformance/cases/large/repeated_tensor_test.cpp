// Tests large tensors on a device whose memory is memory of the test.
#include "conformance/cases/large/repeated_tensor.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

#include "conformance/memory/fake_memory.hpp"

namespace bp::conformance {
namespace {

constexpr int64_t kPeriod = 7;

// A tensor of f32 of the test, whose period holds 1, 2, 3, ...
struct Made {
  Made(FakeMemory& memory, Role role, Shape period, Growth growth_in,
       Layout layout = Layout::kDense, bp_dtype dtype = BP_F32)
      : argument{"y", role, dtype, period, layout, {}, ""},
        host{"y", role, dtype, period, {}},
        growth(std::move(growth_in)) {
    subject.target = &memory.target;
    for (int64_t i = 0; i < element_count(period); ++i) {
      host.data.push_back(DoubleDouble::from_int64(i + 1));
    }
    expected.value = host.data;
    if (role == Role::kOutput) host.data.clear();
    context = std::make_unique<Context>(subject, which, 7);
    tensor = std::make_unique<RepeatedTensor>(*context, nullptr, argument, host, growth, false);
    buffer = tensor->view()->buffer;
    memory_ = &memory;
    tensor->upload();
  }

  std::byte* element(int64_t offset) {
    const uint64_t size = element_size(argument.dtype);
    return memory_->at({buffer, tensor->view()->byte_offset, size}) +
           offset * static_cast<int64_t>(size);
  }
  void store(int64_t offset, double value) {
    store_element(argument.dtype, DoubleDouble(value), element(offset));
  }
  WrongElements wrong() {
    RepeatedJudge judge(host, expected, numerics);
    return tensor->wrong_elements(judge);
  }

  TensorArgument argument;
  HostTensor host;
  Growth growth;
  Subject subject;
  Case which;
  Expected expected;
  Numerics numerics;
  std::unique_ptr<Context> context;
  std::unique_ptr<RepeatedTensor> tensor;
  bp_buffer* buffer = nullptr;
  FakeMemory* memory_ = nullptr;
};

// Returns an output that a right kernel has written.
std::unique_ptr<Made> right_output(FakeMemory& memory, int64_t count) {
  auto made = std::make_unique<Made>(memory, Role::kOutput, Shape{kPeriod}, Growth{{count}});
  for (int64_t i = 0; i < count; ++i) made->store(i, static_cast<double>(i % kPeriod + 1));
  return made;
}

TEST(RepeatedTensor, UploadsThePeriodAgainAndAgain) {
  FakeMemory memory;
  Made made(memory, Role::kInput, {kPeriod}, {{100}});
  for (int64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(load_element(BP_F32, made.element(i)).hi, static_cast<double>(i % kPeriod + 1)) << i;
  }
  EXPECT_EQ(made.tensor->change(), "");
  EXPECT_EQ(made.tensor->damage(), "");
}

TEST(RepeatedTensor, RepeatsEachAxisInEachLayout) {
  for (const Layout layout : {Layout::kDense, Layout::kTransposed, Layout::kSliced}) {
    FakeMemory memory;
    const Shape large = {5, 9};
    Made made(memory, Role::kInput, {3, 7}, {large}, layout);
    const Placement placement = place(layout, large);
    for (int64_t i = 0; i < 45; ++i) {
      const auto wanted = static_cast<double>((i / 9 % 3) * 7 + i % 9 % 7 + 1);
      const int64_t offset = element_offset(placement, large, i);
      EXPECT_EQ(load_element(BP_F32, made.element(offset)).hi, wanted) << i;
    }
    EXPECT_EQ(made.tensor->change(), "");
  }
}

TEST(RepeatedTensor, AcceptsARightResult) {
  FakeMemory memory;
  const auto made = right_output(memory, 1000);
  EXPECT_EQ(made->wrong().count, 0);
}

TEST(RepeatedTensor, FindsEachWrongElement) {
  FakeMemory memory;
  const auto made = right_output(memory, 1000);
  for (const int64_t at : {int64_t{0}, int64_t{512}, int64_t{999}}) {
    const double right = static_cast<double>(at % kPeriod + 1);
    made->store(at, right + 0x1p-20);
    const WrongElements wrong = made->wrong();
    EXPECT_EQ(wrong.count, 1);
    EXPECT_EQ(wrong.first, at);
    EXPECT_EQ(wrong.last, at);
    EXPECT_EQ(wrong.slot, at % kPeriod);
    EXPECT_FALSE(wrong.are_unwritten);
    made->store(at, right);
  }
}

TEST(RepeatedTensor, FindsElementsOfTheRightPeriodInTheWrongPlace) {
  FakeMemory memory;
  const auto made = right_output(memory, 1000);
  std::memmove(made->element(512), made->element(256), 4 * 256);  // 256 is no whole period.
  const WrongElements wrong = made->wrong();
  EXPECT_EQ(wrong.count, 256);
  EXPECT_EQ(wrong.first, 512);
  EXPECT_EQ(wrong.last, 767);
}

TEST(RepeatedTensor, TellsElementsThatWereNotWritten) {
  FakeMemory memory;
  Made made(memory, Role::kOutput, {kPeriod}, {{1000}});
  for (int64_t i = 0; i < 900; ++i) made.store(i, static_cast<double>(i % kPeriod + 1));
  const WrongElements wrong = made.wrong();
  EXPECT_EQ(wrong.count, 100);
  EXPECT_EQ(wrong.first, 900);
  EXPECT_TRUE(wrong.are_unwritten);
}

TEST(RepeatedTensor, FindsWritesBesideIt) {
  FakeMemory memory;
  const auto made = right_output(memory, 1000);
  std::byte before{}, behind{};
  std::swap(before, *(made->element(0) - 1));
  EXPECT_NE(made->tensor->damage(), "");
  std::swap(before, *(made->element(0) - 1));
  EXPECT_EQ(made->tensor->damage(), "");
  std::swap(behind, *made->element(1000));
  EXPECT_NE(made->tensor->damage(), "");
}

TEST(RepeatedTensor, FindsWritesBetweenTheRowsOfAnOutput) {
  FakeMemory memory;
  const Shape large = {4, 5};
  Made made(memory, Role::kOutput, {1, 1}, {large}, Layout::kSliced);
  const Placement placement = place(Layout::kSliced, large);
  for (int64_t i = 0; i < 20; ++i) made.store(element_offset(placement, large, i), 1);
  EXPECT_EQ(made.wrong().count, 0);
  EXPECT_EQ(made.tensor->damage(), "");
  made.store(5, 1);  // The first element of the gap behind row 0.
  EXPECT_NE(made.tensor->damage(), "");
}

TEST(RepeatedTensor, FindsAChangedInput) {
  FakeMemory memory;
  Made made(memory, Role::kInput, {kPeriod}, {{1000}});
  made.store(997, 0);
  EXPECT_NE(made.tensor->change(), "");
}

TEST(RepeatedTensor, MovesIndicesByWholePeriods) {
  FakeMemory memory;
  Made made(memory, Role::kInput, {kPeriod}, {{1000}, 10, 100}, Layout::kDense, BP_I64);
  int64_t largest = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t index = to_int64(load_element(BP_I64, made.element(i)));
    EXPECT_EQ(index % 10, i % kPeriod + 1) << i;
    EXPECT_LT(index, 100);
    largest = std::max(largest, index);
  }
  EXPECT_GT(largest, 90);
}

}  // namespace
}  // namespace bp::conformance

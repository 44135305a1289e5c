// Tests programs whose inputs and outputs share memory. Each program is launched with separate
// memory and with shared memory, and has to give the same output.
#include "backplane/shell/aliases.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/shell/test_compiler.hpp"

namespace bp {
namespace {

const std::vector<float> kX = {1, 2, 3, 4}, kG = {10, 20, 30, 40};

class AliasTest : public ProgramTest {
 protected:
  AliasTest() {
    copy = make_kernel<bp_copy_args>("copy", BP_OP_COPY, launch_copy);
    offer({&neg, &add, &copy});
    maker.aliases.push_back({p, y});
  }

  static bp_status launch_copy(const bp_kernel* self, const bp_launch* launch, const void* args) {
    const auto& a = *static_cast<const bp_copy_args*>(args);
    auto& test = static_cast<AliasTest&>(of(self));
    const bp_status status = test.enter(*self, *launch, {*a.x, *a.y});
    for (int64_t i = 0; i < element_count(*a.y); ++i) {
      test.device.element(*a.y, i) = test.device.element(*a.x, i);
    }
    return status;
  }
  void add_copy(uint32_t x, uint32_t to) {
    maker.add_node(BP_OP_COPY, bp_copy_args{.x = maker.whole(x), .y = maker.whole(to)}, {x, to});
  }

  // Returns y of a launch, in which p and y may be one memory.
  std::vector<float> result(bp_executable* executable, bool is_shared) {
    ProgramCall call(device, kernel_of(executable), maker, {kX, kG});
    launched.clear();
    device.log.clear();
    bp_tensor own = call.tensors[2];
    if (is_shared) call.tensors[2].buffer = call.tensors[0].buffer;
    EXPECT_EQ(call.run(), BP_OK) << device.text;
    std::vector<float> elements = call.elements(2);
    if (!is_shared) {
      EXPECT_EQ(call.elements(0), kX) << "separate memory leaves the input alone";
    }
    call.tensors[2] = own;
    return elements;
  }
  // Expects one result with and without shared memory. Returns how many inputs were copied.
  size_t expect(const std::vector<float>& want) {
    bp_executable* const executable = compile(maker);
    EXPECT_EQ(result(executable, false), want);
    EXPECT_TRUE(device.log.empty() || device.log[0].find("copied") == std::string::npos);
    EXPECT_EQ(result(executable, true), want);
    size_t count = 0;
    for (const std::string& line : device.log) count += line.ends_with("copied") ? 1 : 0;
    return count;
  }
  std::string refusal() {
    bp_executable* executable = nullptr;
    EXPECT_EQ(ops.compile(ops.self, device.handle(), maker.desc(), &executable),
              BP_INVALID_ARGUMENT);
    return device.text;
  }

  ProgramMaker maker;
  const uint32_t p = maker.add_value(BP_VALUE_INPUT), g = maker.add_value(BP_VALUE_INPUT),
                 y = maker.add_value(BP_VALUE_OUTPUT), t = maker.add_value(BP_VALUE_TEMPORARY);
  bp_kernel copy{};
};

TEST_F(AliasTest, UpdatesAParameterInPlace) {
  maker.add_neg(g, t);
  maker.add_add(p, t, y);
  EXPECT_EQ(expect({-9, -18, -27, -36}), 0u);
}

TEST_F(AliasTest, CopiesAnInputThatIsReadAfterItIsOverwritten) {
  maker.add_add(p, g, y);
  maker.add_add(y, p, y);
  EXPECT_EQ(expect({12, 24, 36, 48}), 1u);
}

TEST_F(AliasTest, CopiesTheInputOfAKernelThatDoesNotWorkInPlace) {
  add.flags &= ~bp_kernel_flags{BP_KERNEL_IN_PLACE};
  maker.add_add(p, g, y);
  EXPECT_EQ(expect({11, 22, 33, 44}), 1u);
}

TEST_F(AliasTest, CopiesAnInputWhoseViewIsNotThatOfTheOutput) {
  // y[0:2] = p[2:4], then y[2:4] = p[0:2].
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({2}, 8), .y = maker.view({2}, 0)}, {p, y});
  maker.add_node(BP_OP_NEG, bp_neg_args{.x = maker.view({2}, 0), .y = maker.view({2}, 8)}, {p, y});
  EXPECT_EQ(expect({-3, -4, -1, -2}), 1u);
}

TEST_F(AliasTest, DoesNotRunACopyToItself) {
  add_copy(p, y);
  maker.add_add(y, g, y);
  EXPECT_EQ(expect({11, 22, 33, 44}), 0u);
  ASSERT_EQ(launched.size(), 1u);
  EXPECT_EQ(launched[0].kernel, "add");
}

TEST_F(AliasTest, RunsACopyOfWhatIsOverwritten) {
  maker.add_neg(p, y);
  add_copy(p, y);
  EXPECT_EQ(expect(kX), 1u);
  EXPECT_EQ(launched.size(), 2u);
}

TEST_F(AliasTest, KeepsItsAliasesInBytes) {
  maker.add_add(p, g, y);
  maker.add_add(y, p, y);
  bp_executable* executable = compile(maker);
  uint64_t size = 0;
  ASSERT_EQ(ops.serialize(ops.self, executable, 0, nullptr, &size), BP_OK);
  std::vector<uint8_t> bytes(size);
  ASSERT_EQ(ops.serialize(ops.self, executable, size, bytes.data(), &size), BP_OK);
  ASSERT_EQ(ops.deserialize(ops.self, device.handle(), bytes.data(), size, nullptr, &executable),
            BP_OK);
  EXPECT_EQ(result(executable, true), (std::vector<float>{12, 24, 36, 48}));
  uint64_t with[2] = {}, without[2] = {};
  ASSERT_EQ(ops.fingerprint(ops.self, device.handle(), maker.desc(), with), BP_OK);
  maker.aliases.clear();
  ASSERT_EQ(ops.fingerprint(ops.self, device.handle(), maker.desc(), without), BP_OK);
  EXPECT_NE(with[0], without[0]);
}

TEST_F(AliasTest, RefusesOutputsInTheMemoryOfOtherTensors) {
  maker.add_add(p, g, y);
  bp_executable* const executable = compile(maker);
  ProgramCall call(device, kernel_of(executable), maker, {kX, kG});
  const bp_tensor own = call.tensors[2];
  call.tensors[2].buffer = call.tensors[1].buffer;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text,
            "program: tensor 2 is an output in the memory of tensor 1, and the program has no "
            "alias for the two alone");
  const bp_tensor other = call.tensors[1];
  call.tensors[1] = call.tensors[0];
  call.tensors[2].buffer = call.tensors[0].buffer;
  EXPECT_EQ(call.run(), BP_INVALID_ARGUMENT) << "p is given as g too";
  call.tensors[2] = own;
  EXPECT_EQ(call.run(), BP_OK) << "two inputs may be one memory: " << device.text;
  call.tensors[1] = other;
  EXPECT_EQ(launched.size(), 1u);
}

TEST_F(AliasTest, RefusesBrokenAliases) {
  maker.add_add(p, g, y);
  const auto with = [&](bp_program_alias alias) {
    maker.aliases = {alias};
    return refusal();
  };
  EXPECT_EQ(with({y, y}), "program: alias 0: value 2 is not an input");
  EXPECT_EQ(with({p, g}), "program: alias 0: value 1 is not an output");
  EXPECT_EQ(with({99, y}), "program: alias 0: value 99 is not an input");
  const uint32_t z = maker.add_value(BP_VALUE_OUTPUT, {2, 2});
  EXPECT_EQ(with({p, z}),
            "program: alias 0: values 0 and 4 have not one dtype, shape, layout and strides");
  maker.aliases = {{p, y}, {g, y}};
  EXPECT_EQ(refusal(), "program: alias 1: another alias names value 2 too");
  bp_program* const program = maker.program();
  program->aliases = nullptr;
  bp_compile_desc desc = *maker.desc();
  bp_program without = *program;
  without.aliases = nullptr;
  desc.data = &without;
  bp_executable* executable = nullptr;
  EXPECT_EQ(ops.compile(ops.self, device.handle(), &desc, &executable), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "program: aliases is NULL");
}

TEST_F(AliasTest, WorksWithExtents) {
  ProgramMaker ranged;
  const int64_t n = ranged.add_range(1, 4, 8);
  const uint32_t a = ranged.add_value(BP_VALUE_INPUT, {n}),
                 b = ranged.add_value(BP_VALUE_OUTPUT, {n});
  ranged.aliases.push_back({a, b});
  ranged.add_neg(a, b);
  ranged.add_add(b, a, b);
  bp_executable* const executable = compile(ranged);
  for (const int64_t extent : {1, 3, 8}) {
    const int64_t shape[] = {extent}, strides[] = {1};
    ProgramMaker fixed;
    fixed.add_value(BP_VALUE_INPUT, {extent});
    fixed.add_value(BP_VALUE_OUTPUT, {extent});
    ProgramCall call(device, kernel_of(executable), fixed,
                     {std::vector<float>(static_cast<size_t>(extent), 5)});
    call.tensors[0].shape = call.tensors[1].shape = shape;
    call.tensors[0].strides = call.tensors[1].strides = strides;
    const bp_tensor own = call.tensors[1];
    call.tensors[1].buffer = call.tensors[0].buffer;
    EXPECT_EQ(call.run(), BP_OK) << device.text;
    EXPECT_EQ(call.elements(1), std::vector<float>(static_cast<size_t>(extent), 0));
    call.tensors[1] = own;
  }
}

}  // namespace
}  // namespace bp

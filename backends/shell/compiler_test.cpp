// Tests the table of the compiler: the programs that it takes, the kernels that it chooses, and
// serialized executables.
#include "backplane/shell/compiler.hpp"

#include "backends/shell/test_compiler.hpp"

namespace bp {
namespace {

using Values = std::vector<float>;

class CompilerTest : public ProgramTest {
 protected:
  // t = -x; y = t + c
  CompilerTest() {
    maker.add_neg(x, t);
    maker.add_add(t, c, y);
  }

  // Returns why the compiler does not take `node`, or "" if it does.
  std::string reason_of(ProgramMaker& of, size_t node, bp_launch_flags flags = 0) {
    std::vector<uint32_t> partitions(of.nodes.size(), 77);
    std::vector<bp_reason> reasons(of.nodes.size(), "not written");
    uint64_t count = 0;
    EXPECT_EQ(ops.query(ops.self, device.handle(), of.desc(flags), reasons.size(),
                        partitions.data(), reasons.data(), &count),
              BP_OK)
        << device.text;
    EXPECT_EQ(partitions[node] == BP_NO_PARTITION, reasons[node] != nullptr);
    return reasons[node] == nullptr ? "" : reasons[node];
  }
  // Returns the reason for a program of one node, whose frame `change` has changed.
  std::string reason_of_neg(bp_launch_flags flags,
                            const std::function<void(ProgramMaker&, bp_tensor& x)>& change) {
    ProgramMaker one;
    const uint32_t a = one.add_value(BP_VALUE_INPUT), b = one.add_value(BP_VALUE_OUTPUT);
    bp_neg_args& args = one.add_neg(a, b);
    bp_tensor view = *args.x;
    args.x = &view;
    change(one, view);
    return reason_of(one, 0, flags);
  }

  bp_status compile_status(ProgramMaker& of, bp_launch_flags flags = 0) {
    bp_executable* executable = nullptr;
    const bp_status status = ops.compile(ops.self, device.handle(), of.desc(flags), &executable);
    EXPECT_EQ(executable == nullptr, status != BP_OK);
    return status;
  }

  std::vector<std::byte> bytes_of(bp_executable* executable) {
    uint64_t size_bytes = 0;
    EXPECT_EQ(ops.serialize(ops.self, executable, 0, nullptr, &size_bytes), BP_OK) << device.text;
    std::vector<std::byte> bytes(size_bytes);
    EXPECT_EQ(ops.serialize(ops.self, executable, size_bytes, bytes.data(), &size_bytes), BP_OK);
    EXPECT_EQ(size_bytes, bytes.size());
    return bytes;
  }
  bp_status read(const std::vector<std::byte>& bytes, bp_executable** out_executable) {
    return ops.deserialize(ops.self, device.handle(), bytes.data(), bytes.size(), nullptr,
                           out_executable);
  }

  const Values data{10, 20, 30, 40};
  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), c = maker.add_constant(data),
                 t = maker.add_value(BP_VALUE_TEMPORARY), y = maker.add_value(BP_VALUE_OUTPUT);
};

// ---- Which nodes it takes -----------------------------------------------------------------------

TEST_F(CompilerTest, NamesTheNodeWithoutAKernel) {
  offer({&neg});
  EXPECT_EQ(reason_of(maker, 0), "");
  EXPECT_EQ(reason_of(maker, 1), "the device has no kernel for the op");
  EXPECT_EQ(compile_status(maker), BP_UNSUPPORTED);
  EXPECT_EQ(device.text, "compile: node 1: add: the device has no kernel for the op");
  EXPECT_EQ(device.live_count(), 0u);
}

TEST_F(CompilerTest, TakesTheFirstKernelThatTakesTheNode) {
  static constexpr bp_dtype kF64[] = {BP_F64};
  bp_kernel other = neg, second = neg, third = neg;
  other.dtype_rows = kF64;
  other.dtype_row_count = other.dtype_count = 1;
  second.name = "second";
  offer({&add, &other, &second, &third});
  EXPECT_EQ(run(compile(maker), maker, {{1, 2, 3, 4}})[1], (Values{9, 18, 27, 36}));
  EXPECT_EQ(launched[0].kernel, "second");
}

TEST_F(CompilerTest, SaysWhyAKernelDoesNotTakeANode) {
  static constexpr bp_numerics kReduced{.products = BP_PRODUCTS_TF32};
  static constexpr bp_dtype kF64[] = {BP_F64};
  const auto reason = [&](bp_launch_flags flags, const auto& change_kernel) {
    const bp_kernel before = neg;
    change_kernel(neg);
    std::string text = reason_of_neg(flags, [](ProgramMaker&, bp_tensor&) {});
    neg = before;
    return text;
  };
  EXPECT_EQ(reason(BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32, [](bp_kernel&) {}), "");
  EXPECT_EQ(reason(BP_LAUNCH_DETERMINISTIC, [](bp_kernel& k) { k.flags = 0; }),
            "not deterministic");
  EXPECT_EQ(reason(0, [](bp_kernel& k) { k.numerics = &kReduced; }), "");
  EXPECT_EQ(reason(BP_LAUNCH_STRICT_F32, [](bp_kernel& k) { k.numerics = &kReduced; }),
            "multiplies in reduced precision");
  EXPECT_EQ(reason(0,
                   [&](bp_kernel& k) {
                     k.dtype_rows = kF64;
                     k.dtype_row_count = k.dtype_count = 1;
                   }),
            "dtypes not claimed");
  EXPECT_EQ(reason(0,
                   [](bp_kernel& k) {
                     k.supports = [](const bp_kernel*, bp_device*, bp_launch_flags,
                                     const void*) -> bp_reason { return "not on Sundays"; };
                   }),
            "not on Sundays");
}

TEST_F(CompilerTest, SaysWhichTensorsAKernelDoesNotTake) {
  static constexpr int64_t kZero[] = {0};
  neg.max_rank = 2;
  neg.layouts = BP_LAYOUT_CONTIGUOUS;
  neg.min_byte_alignment_bytes = 8;
  const auto view_reason = [&](const std::function<void(ProgramMaker&, bp_tensor&)>& change) {
    return reason_of_neg(0, change);
  };
  EXPECT_EQ(view_reason([](ProgramMaker&, bp_tensor& v) { v.strides = kZero; }),
            "layout not claimed");
  EXPECT_EQ(view_reason([](ProgramMaker& m, bp_tensor& v) {
              v = *m.view({1, 1, 1});
            }),
            "rank not claimed");
  EXPECT_EQ(view_reason([](ProgramMaker& m, bp_tensor& v) { v = *m.view({2}, 4); }),
            "alignment not claimed");
  EXPECT_EQ(view_reason([](ProgramMaker& m, bp_tensor& v) { v = *m.view({2}, 8); }), "");
}

TEST_F(CompilerTest, AsksForKernelsInPlaceAndOfInlineScalars) {
  maker.add_node(BP_OP_ADD, bp_add_args{.a = maker.whole(x), .y = maker.whole(y)},
                 {x, BP_NO_VALUE, y});
  maker.add_neg(y, y);
  EXPECT_EQ(reason_of(maker, 2) + reason_of(maker, 3), "");
  add.flags &= ~bp_kernel_flags{BP_KERNEL_TAKES_SCALAR};
  neg.flags &= ~bp_kernel_flags{BP_KERNEL_IN_PLACE};
  EXPECT_EQ(reason_of(maker, 2), "an inline scalar is not claimed");
  EXPECT_EQ(reason_of(maker, 3), "not for use in place");
  EXPECT_EQ(reason_of(maker, 0) + reason_of(maker, 1), "");
}

TEST_F(CompilerTest, AsksForKernelsOfOperandsInF32) {
  static constexpr int64_t kNone[] = {0};
  bp_tensor a = *maker.whole(x), b = a, out = *maker.whole(y);
  a.dtype = out.dtype = BP_BF16;
  b.strides = kNone;
  maker.add_node(BP_OP_ADD, bp_add_args{.a = &a, .b = &b, .y = &out}, {x, x, y});
  EXPECT_EQ(reason_of(maker, 2), "an operand in f32 is not claimed");
  add.flags |= BP_KERNEL_TAKES_ACC_OPERAND;
  EXPECT_EQ(reason_of(maker, 2), "");
  b.strides = a.strides;
  EXPECT_EQ(reason_of(maker, 2), "an operand in f32 is not claimed") << "it has more elements";
}

// The frame of a later release.
struct NewerArgs : bp_neg_args {
  uint64_t extra = 0;
};

TEST_F(CompilerTest, GivesEachKernelTheFrameOfItsOwnBuild) {
  neg.launch = [](const bp_kernel* self, const bp_launch* launch, const void* args) {
    const auto& frame = *static_cast<const NewerArgs*>(args);
    EXPECT_EQ(frame.struct_size, self->args_size_bytes);
    EXPECT_TRUE(frame.struct_size < sizeof(NewerArgs) || frame.extra == 0);
    return launch_neg(self, launch, args);
  };
  neg.args_size_bytes = sizeof(NewerArgs);
  EXPECT_EQ(run(compile(maker), maker, {{1, 2, 3, 4}})[1], (Values{9, 18, 27, 36}));
  neg.args_size_bytes = sizeof(bp_neg_args);
  ProgramMaker newer;
  const uint32_t a = newer.add_value(BP_VALUE_INPUT), b = newer.add_value(BP_VALUE_OUTPUT);
  NewerArgs args;
  args.x = newer.whole(a);
  args.y = newer.whole(b);
  auto& frame = newer.add_node(BP_OP_NEG, args, {a, b});
  EXPECT_EQ(run(compile(newer), newer, {{1, 2, 3, 4}})[1], (Values{-1, -2, -3, -4}));
  frame.extra = 1;
  EXPECT_NE(compile_status(newer), BP_OK) << "what it does not know is given";
}

TEST_F(CompilerTest, AsksSupportsWithTheFrameOfTheKernelsBuild) {
  neg.args_size_bytes = sizeof(NewerArgs);
  neg.supports = [](const bp_kernel* self, bp_device*, bp_launch_flags,
                    const void* args) -> bp_reason {
    const auto& frame = *static_cast<const NewerArgs*>(args);
    EXPECT_EQ(frame.struct_size, self->args_size_bytes);
    return frame.extra == 0 ? nullptr : "extra is given";
  };
  EXPECT_EQ(reason_of(maker, 0), "");
}

TEST_F(CompilerTest, SaysThatAKernelDoesNotKnowANewerFrame) {
  NewerArgs args;
  args.x = maker.whole(x);
  args.y = maker.whole(y);
  args.extra = 1;
  maker.add_node(BP_OP_NEG, args, {x, y});
  EXPECT_EQ(reason_of(maker, 2),
            "byte 24 of the frame is not zero, and this build and its host are too old to know it");
  EXPECT_EQ(compile_status(maker), BP_UNSUPPORTED);
  device.host.op_describe = [](void*, uint32_t, const bp_op_desc** out_desc) -> bp_status {
    static const bp_op_argument arguments[] = {{.name = "x", .offset_bytes = 8},
                                               {.name = "y", .offset_bytes = 16},
                                               {.name = "extra", .offset_bytes = 24}};
    static const bp_op_desc desc{.frame_size_bytes = sizeof(NewerArgs),
                                 .arguments = arguments,
                                 .argument_count = 3,
                                 .argument_stride_bytes = sizeof(bp_op_argument)};
    *out_desc = &desc;
    return BP_OK;
  };
  EXPECT_EQ(reason_of(maker, 2), "extra is given; the kernel was written for revision 4")
      << "the host is newer, and names it";
  EXPECT_EQ(compile_status(maker), BP_UNSUPPORTED);
  EXPECT_NE(device.text.find("extra is given"), std::string::npos) << device.text;
}

// [KERNEL-10]
TEST_F(CompilerTest, KeepsValuesThatThisBuildDoesNotKnowFromItsKernels) {
  const bp_kernel gelu = make_kernel<bp_gelu_args>("gelu", BP_OP_GELU, launch_neg);
  offer({&gelu});
  const auto reason = [&](uint32_t approximation) {
    ProgramMaker one;
    const uint32_t a = one.add_value(BP_VALUE_INPUT), b = one.add_value(BP_VALUE_OUTPUT);
    one.add_node(BP_OP_GELU,
                 bp_gelu_args{.x = one.whole(a), .y = one.whole(b), .approximation = approximation},
                 {a, b});
    return reason_of(one, 0);
  };
  EXPECT_EQ(reason(BP_GELU_APPROXIMATION_TANH), "");
  EXPECT_EQ(reason(BP_GELU_APPROXIMATION_TANH + 1),
            "approximation is 3; this build knows the values up to 2");
}

TEST_F(CompilerTest, FitsEachRowToATensorThatIsAbsent) {
  static constexpr bp_dtype kRow[] = {BP_F32, BP_I64};
  bp_kernel sort = make_kernel<bp_sort_args>("sort", BP_OP_SORT, launch_neg);
  sort.dtype_rows = kRow;
  sort.dtype_row_count = 1;
  sort.dtype_count = 2;
  offer({&sort});
  const auto reason = [&](bp_dtype of_indices) {
    ProgramMaker one;
    const uint32_t a = one.add_value(BP_VALUE_INPUT), b = one.add_value(BP_VALUE_OUTPUT);
    bp_sort_args args{.x = one.whole(a), .y = one.whole(b)};
    uint32_t i = BP_NO_VALUE;
    if (of_indices != 0) {
      i = one.add_value(BP_VALUE_OUTPUT, {4}, of_indices);
      args.indices = one.whole(i);
    }
    one.add_node(BP_OP_SORT, args, {a, b, i});
    return reason_of(one, 0);
  };
  EXPECT_EQ(reason(BP_I64), "");
  EXPECT_EQ(reason(BP_I32), "dtypes not claimed");
  EXPECT_EQ(reason(0), "") << "the indices are not given";
}

TEST_F(CompilerTest, TakesNoListOfTwoDtypesWhereDtypesAreClaimed) {
  static constexpr bp_dtype kF32[] = {BP_F32};
  bp_kernel cat = make_kernel<bp_cat_args>("cat", BP_OP_CAT, launch_neg);
  cat.dtype_rows = kF32;
  cat.dtype_row_count = cat.dtype_count = 1;
  offer({&cat});
  const auto reason = [&](bp_dtype second) {
    ProgramMaker one;
    const uint32_t a = one.add_value(BP_VALUE_INPUT),
                   b = one.add_value(BP_VALUE_INPUT, {4}, second),
                   z = one.add_value(BP_VALUE_OUTPUT, {8});
    const bp_tensor* const xs[] = {one.whole(a), one.whole(b)};
    one.add_node(BP_OP_CAT, bp_cat_args{.xs_count = 2, .xs = xs, .y = one.whole(z)}, {a, b, z});
    return reason_of(one, 0);
  };
  EXPECT_EQ(reason(BP_F32), "");
  EXPECT_EQ(reason(BP_I32), "dtypes not claimed");
}

// ---- The table ----------------------------------------------------------------------------------

TEST_F(CompilerTest, HasOneFormat) {
  uint64_t count = 0;
  const char* const* names = nullptr;
  ASSERT_EQ(ops.formats(ops.self, device.handle(), &count, &names), BP_OK);
  ASSERT_EQ(count, 1u);
  EXPECT_STREQ(names[0], "backplane.graph");
  EXPECT_EQ(ops.formats(ops.self, device.handle(), nullptr, &names), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "formats: out_count or out_names is NULL");
}

TEST_F(CompilerTest, RefusesADescThatItDoesNotUnderstand) {
  const auto refusal = [&](bp_status want, const std::function<void(bp_compile_desc&)>& change) {
    bp_compile_desc desc = *maker.desc();
    change(desc);
    bp_executable* executable = nullptr;
    EXPECT_EQ(ops.compile(ops.self, device.handle(), &desc, &executable), want);
    EXPECT_EQ(executable, nullptr);
    return device.text;
  };
  EXPECT_EQ(refusal(BP_UNSUPPORTED, [](bp_compile_desc& d) { d.format = "acme.graph"; }),
            "compile: format is acme.graph, and backplane.graph is allowed");
  EXPECT_EQ(refusal(BP_UNSUPPORTED, [](bp_compile_desc& d) { d.format = nullptr; }),
            "compile: format is NULL, and backplane.graph is allowed");
  EXPECT_EQ(refusal(BP_UNSUPPORTED, [](bp_compile_desc& d) { d.flags = 8; }),
            "compile: flags are 8 and reserved is 0; flags may have the bits of 7, and reserved "
            "must be 0");
  refusal(BP_UNSUPPORTED, [](bp_compile_desc& d) { d.reserved = 1; });
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, [](bp_compile_desc& d) { d.data = nullptr; }),
            "program: data is NULL");
  EXPECT_EQ(refusal(BP_INVALID_ARGUMENT, [](bp_compile_desc& d) { d.struct_type = 0; }),
            "compile: desc: struct_type is 0, not 32");
  EXPECT_EQ(refusal(BP_INCOMPATIBLE, [](bp_compile_desc& d) { d.struct_size = 40; }),
            "compile: desc: at byte 40 it differs from what this backend can read");
  bp_reason reasons[2] = {"as it was"};
  uint32_t partitions[2] = {};
  uint64_t count = 7;
  const auto query = [&](uint64_t capacity, uint64_t* out_count) {
    return ops.query(ops.self, device.handle(), maker.desc(), capacity, partitions, reasons,
                     out_count);
  };
  EXPECT_EQ(query(1, &count), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "query: capacity is 1, and the program has 2 nodes");
  EXPECT_EQ(query(2, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "query: out_partitions, out_reasons or out_partition_count is NULL");
  EXPECT_STREQ(reasons[0], "as it was");
  EXPECT_EQ(count, 7u);
  EXPECT_EQ(ops.compile(ops.self, device.handle(), maker.desc(), nullptr), BP_INVALID_ARGUMENT);
}

TEST_F(CompilerTest, RefusesHandlesThatAreNotItsOwn) {
  bp_executable* const executable = compile(maker);
  const bp_kernel* kernel = nullptr;
  EXPECT_EQ(ops.release(ops.self, nullptr), BP_OK);
  EXPECT_EQ(ops.release(ops.self, executable), BP_OK);
  EXPECT_EQ(ops.release(ops.self, executable), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "release: executable is NULL or not one of this backend");
  EXPECT_EQ(ops.executable_kernel(ops.self, executable, &kernel), BP_INVALID_ARGUMENT);
  EXPECT_EQ(ops.executable_kernel(ops.self, nullptr, &kernel), BP_INVALID_ARGUMENT);
  EXPECT_EQ(ops.executable_kernel(ops.self, compile(maker), nullptr), BP_INVALID_ARGUMENT);
  bp_executable* made = nullptr;
  for (bp_device* const wrong :
       {static_cast<bp_device*>(nullptr), reinterpret_cast<bp_device*>(&maker)}) {
    EXPECT_EQ(ops.compile(ops.self, wrong, maker.desc(), &made), BP_INVALID_ARGUMENT);
    EXPECT_EQ(device.text, "compile: device is NULL or not one of this backend");
  }
  EXPECT_EQ(made, nullptr);
}

TEST_F(CompilerTest, PromisesOfAProgramWhatAllItsNodesPromise) {
  const bp_kernel_flags all = BP_KERNEL_CAPTURABLE | BP_KERNEL_DETERMINISTIC;
  const bp_kernel& kernel = kernel_of(compile(maker));
  EXPECT_EQ(kernel.flags, all);
  EXPECT_EQ(kernel.op, 0u);
  EXPECT_EQ(kernel.args_size_bytes, sizeof(bp_program_args));
  add.flags = BP_KERNEL_CAPTURABLE;
  EXPECT_EQ(kernel_of(compile(maker)).flags, bp_kernel_flags{BP_KERNEL_CAPTURABLE});
  add.flags = 0;
  EXPECT_EQ(kernel_of(compile(maker)).flags, 0u);
}

TEST_F(CompilerTest, EndsTheExecutablesThatNobodyReleased) {
  compile(maker);
  compile(maker);
  EXPECT_EQ(device.live_count(), 2u) << "the constants of both";
  compiler.reset();
  EXPECT_EQ(device.live_count(), 0u);
}

// ---- As bytes -----------------------------------------------------------------------------------

TEST_F(CompilerTest, RunsWhatItReadFromBytes) {
  bp_executable* const executable = compile(maker, BP_LAUNCH_STRICT_F32);
  const std::vector<std::byte> bytes = bytes_of(executable);
  EXPECT_EQ(ops.release(ops.self, executable), BP_OK);
  offer({&add, &neg});  // Another process of the same build has these kernels.
  bp_executable* again = nullptr;
  ASSERT_EQ(read(bytes, &again), BP_OK) << device.text;
  EXPECT_EQ(run(again, maker, {{1, 2, 3, 4}})[1], (Values{9, 18, 27, 36}));
  EXPECT_EQ(info_of(again).constant_bytes, 256u);
  EXPECT_EQ(bytes_of(again), bytes);
  ProgramCall call(device, kernel_of(again), maker, {});
  call.launch.flags = BP_LAUNCH_STRICT_F32;
  EXPECT_EQ(call.run(), BP_OK) << "it is for the same flags";
  call.launch.flags = BP_LAUNCH_DETERMINISTIC;
  EXPECT_EQ(call.run(), BP_UNSUPPORTED);
}

TEST_F(CompilerTest, WritesAsManyBytesAsFit) {
  bp_executable* const executable = compile(maker);
  const std::vector<std::byte> bytes = bytes_of(executable);
  std::vector<std::byte> part(20, std::byte{0xEE});
  uint64_t size_bytes = 0;
  EXPECT_EQ(ops.serialize(ops.self, executable, 12, part.data(), &size_bytes), BP_OK);
  EXPECT_EQ(size_bytes, bytes.size());
  EXPECT_TRUE(std::equal(part.begin(), part.begin() + 12, bytes.begin()));
  EXPECT_EQ(part[12], std::byte{0xEE});
  EXPECT_EQ(ops.serialize(ops.self, executable, 1, nullptr, &size_bytes), BP_INVALID_ARGUMENT);
  EXPECT_EQ(ops.serialize(ops.self, executable, 0, nullptr, nullptr), BP_INVALID_ARGUMENT);
}

TEST_F(CompilerTest, RefusesBytesThatEndEarlyOrWereChanged) {
  const std::vector<std::byte> bytes = bytes_of(compile(maker));
  bp_executable* executable = nullptr;
  const size_t live_count = device.live_count();
  for (size_t size = 0; size < bytes.size(); ++size) {
    std::vector<std::byte> part = bytes;  // It is not NULL, even if the size is 0.
    part.resize(size);
    EXPECT_EQ(read(part, &executable), BP_INCOMPATIBLE) << size << " of " << bytes.size();
  }
  for (size_t i = 0; i < bytes.size() * 8; ++i) {
    std::vector<std::byte> changed = bytes;
    changed[i / 8] ^= std::byte{1} << i % 8;
    EXPECT_EQ(read(changed, &executable), BP_INCOMPATIBLE) << "bit " << i;
  }
  EXPECT_EQ(executable, nullptr);
  EXPECT_EQ(device.live_count(), live_count);
  EXPECT_EQ(ops.deserialize(ops.self, device.handle(), nullptr, 8, nullptr, &executable),
            BP_INVALID_ARGUMENT);
}

TEST_F(CompilerTest, RefusesTheBytesOfAnotherBuild) {
  const std::vector<std::byte> bytes = bytes_of(compile(maker));
  offer({&neg, &add}, "test 2");
  bp_executable* executable = nullptr;
  EXPECT_EQ(read(bytes, &executable), BP_INCOMPATIBLE);
  EXPECT_EQ(device.text, "deserialize: the bytes are not of this build of test 2");
  offer({&neg}, "test 1");
  EXPECT_EQ(read(bytes, &executable), BP_UNSUPPORTED) << "a kernel is missing here";
  EXPECT_EQ(executable, nullptr);
}

}  // namespace
}  // namespace bp

// Tests which kernels are chosen, why other kernels are not, and which choices are remembered.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "backplane/registry.hpp"
#include "registry/calls/claims.hpp"
#include "registry/tests/fake_backend.hpp"

namespace bp::core {
namespace {

// A fake backend that is loaded with the kernels of a test.
struct Loaded {
  FakeBackend fake;  // It outlives the registry.
  TestRegistry r;
  const bp_target* target = nullptr;

  explicit Loaded(std::vector<const bp_kernel*> kernels, bp_registry_flags flags = 0) : r(flags) {
    fake.kernels = std::move(kernels);
    EXPECT_EQ(fake.load(r.registry), BP_OK) << bp_error_text();
    target = r.target();
  }

  // Returns the kernel for a call of add, or nullptr if the backend has none of its own.
  const bp_kernel* find(const AddCall& call, bp_launch_flags flags = 0) const {
    bp_kernel_choice choice{};
    const bp_status status =
        bp_kernel_find(target, flags, BP_KERNEL_NATIVE, BP_OP_ADD, &call.args, &choice);
    EXPECT_TRUE(status == BP_OK || status == BP_UNSUPPORTED) << bp_error_text();
    return choice.kernel;
  }
};

// A call whose tensors have strides that the test sets.
struct StridedCall : AddCall {
  StridedCall(int64_t s0, int64_t s1) {
    x_strides[0] = s0;
    x_strides[1] = s1;
    a.strides = x_strides;
  }
  int64_t x_strides[2];
};

TEST(Selection, TriesHigherPrioritiesFirstThenTheOrderOfRegistration) {
  const bp_kernel first = make_kernel("first"), second = make_kernel("second");
  bp_kernel best = make_kernel("best");
  best.priority = 1;
  best.layouts = BP_LAYOUT_CONTIGUOUS;
  const Loaded l({&first, &second, &best});
  EXPECT_EQ(l.find(AddCall()), &best);
  EXPECT_EQ(l.find(StridedCall(1, 2)), &first);
}

constexpr bp_dtype kF64[] = {BP_F64};

struct Claim {
  void (*narrows)(bp_kernel&);
  const char* refusal;
};
const Claim kClaims[] = {
    {[](bp_kernel& k) { k.layouts = BP_LAYOUT_CONTIGUOUS | BP_LAYOUT_BROADCAST; },
     "a: layout dense_permuted is not claimed, only contiguous, broadcast"},
    {[](bp_kernel& k) { k.max_rank = 1; }, "a: rank 2 is above 1"},
    {[](bp_kernel& k) { k.min_byte_alignment_bytes = 16; },
     "a: its byte offset is no multiple of 16"},
    {[](bp_kernel& k) {
       k.dtype_rows = kF64;
       k.dtype_row_count = k.dtype_count = 1;
     },
     "dtypes are not claimed: a f32"},
    {[](bp_kernel& k) { k.flags = 0; },
     "it is not deterministic, and the launch flags ask for that"},
    {[](bp_kernel& k) {
       static const bp_numerics tf32{.struct_size = sizeof(bp_numerics),
                                     .struct_type = BP_STRUCT_NUMERICS,
                                     .products = BP_PRODUCTS_TF32};
       k.numerics = &tf32;
     },
     "it multiplies in reduced precision, and the launch flags ask for strict f32"},
    {[](bp_kernel& k) {
       k.supports = [](const bp_kernel*, bp_device*, bp_launch_flags, const void*) -> bp_reason {
         return "mood";
       };
     },
     "mood"},
};

TEST(Selection, HoldsEveryClaimAgainstTheCall) {
  StridedCall call(1, 2);
  call.a.byte_offset = 8;
  for (const Claim& row : kClaims) {
    bp_kernel picky = make_kernel("picky");
    picky.flags |= BP_KERNEL_DETERMINISTIC;
    const bp_kernel sound = picky;
    row.narrows(picky);
    const Loaded l({&picky});
    const bp_launch_flags flags = BP_LAUNCH_DETERMINISTIC | BP_LAUNCH_STRICT_F32;
    EXPECT_EQ(l.find(call, flags), nullptr) << row.refusal;
    EXPECT_EQ(
        bp::explain(*l.target, flags, BP_OP_ADD, &call.args),
        "add(a f32 rank 2 dense_permuted, b f32 rank 2 contiguous, y f32 rank 2 contiguous) "
        "on acme.npu:0\n  acme.npu/picky: " +
            std::string(row.refusal) +
            "\n  decomposition: the op has none"
            "\n  host fallback: no device of class host is loaded; load a backend that has one, "
            "such as a CPU backend");
    const Loaded other({&sound});
    EXPECT_EQ(other.find(call, flags), &sound);
  }
}

TEST(Selection, KeepsCallsInPlaceFromKernelsThatAreNotForThem) {
  bp_kernel apart = make_kernel("apart");
  apart.flags = 0;
  const bp_kernel in_place = make_kernel("in_place");
  const Loaded l({&apart, &in_place});
  unsigned char memory[64];
  AddCall call;
  for (bp_tensor* t : {&call.a, &call.b, &call.y}) {
    t->buffer = reinterpret_cast<bp_buffer*>(memory);
  }
  call.a.byte_offset = 24;
  EXPECT_EQ(l.find(call), &in_place);  // b and y are one tensor.
  call.b.byte_offset = 48;
  EXPECT_EQ(l.find(call), &apart);
}

TEST(Selection, AsksSupportsOnEachCallUnlessItsAnswerCanBeRemembered) {
  static int asked;
  asked = 0;
  bp_kernel kernel = make_kernel("asks");
  kernel.supports = [](const bp_kernel*, bp_device*, bp_launch_flags, const void*) -> bp_reason {
    ++asked;
    return nullptr;
  };
  const Loaded each({&kernel});
  const AddCall call;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(each.find(call), &kernel);
  EXPECT_EQ(asked, 5);

  asked = 0;
  bp_kernel remembered = kernel;
  remembered.supports_ignores =
      BP_SUPPORTS_IGNORES_SHAPE | BP_SUPPORTS_IGNORES_ATTRIBUTES | BP_SUPPORTS_IGNORES_ALIGNMENT;
  const Loaded once({&remembered});
  for (int i = 0; i < 5; ++i) EXPECT_EQ(once.find(call), &remembered);
  EXPECT_EQ(asked, 1);
}

TEST(Selection, ForgetsWhenAPluginComesOrGoes) {
  bp_kernel picky = make_kernel("picky");
  picky.layouts = BP_LAYOUT_CONTIGUOUS;
  Loaded l({&picky});
  FakeBackend host("acme.host", 1, BP_DEVICE_HOST);
  const StridedCall call(1, 2);
  bp_kernel_choice choice{};
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, &call.args, &choice), BP_UNSUPPORTED);
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(host.load(l.r.registry, &plugin), BP_OK);
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, &call.args, &choice), BP_OK);
  EXPECT_EQ(choice.source, BP_KERNEL_HOST_FALLBACK);
  ASSERT_EQ(bp_registry_unload(l.r.registry, plugin, UINT64_MAX), BP_OK);
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, &call.args, &choice), BP_UNSUPPORTED);
}

TEST(Selection, TakesOtherSourcesOnlyWhereTheyAreAllowed) {
  FakeBackend host("acme.host", 1, BP_DEVICE_HOST);
  const AddCall call;
  bp_kernel_choice choice{};
  Loaded l({}, BP_REGISTRY_FORBID_HOST_FALLBACK);
  ASSERT_EQ(host.load(l.r.registry), BP_OK);
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, &call.args, &choice), BP_UNSUPPORTED);
  EXPECT_EQ(bp::explain(*l.target, 0, BP_OP_ADD, &call.args),
            "add(a f32 rank 2 contiguous, b f32 rank 2 contiguous, y f32 rank 2 contiguous) on "
            "acme.npu:0\n  acme.npu: has no kernel for this op"
            "\n  decomposition: the op has none"
            "\n  host fallback: the flags of the registry forbid it");

  bp_mean_args mean{.struct_size = sizeof(bp_mean_args), .x = &call.a, .y = &call.y};
  EXPECT_EQ(bp_kernel_find(l.target, 0, BP_KERNEL_NATIVE, BP_OP_MEAN, &mean, &choice),
            BP_UNSUPPORTED);
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_MEAN, &mean, &choice), BP_OK);
  EXPECT_EQ(choice.source, BP_KERNEL_DECOMPOSED);
}

TEST(Selection, SeesAnInlineScalarAsABroadcastTensorWhereTheKernelTakesNone) {
  bp_kernel dense = make_kernel("dense");
  dense.flags = 0;
  dense.layouts = BP_LAYOUT_CONTIGUOUS;
  bp_kernel broadcast = dense;
  broadcast.name = "broadcast";
  broadcast.layouts = BP_LAYOUT_CONTIGUOUS | BP_LAYOUT_BROADCAST;
  const Loaded l({&dense, &broadcast});
  AddCall call;
  EXPECT_EQ(l.find(call), &dense);
  call.args.b = nullptr;
  call.args.b_scalar = {BP_F64, 0, 0};
  EXPECT_EQ(l.find(call), &broadcast);
  call.shape[0] = call.shape[1] = 1;
  EXPECT_EQ(l.find(call), &dense);
}

TEST(Selection, RunsACallInF32WhereNoKernelHoldsItsOperand) {
  bp_kernel plain = make_kernel("plain");
  plain.flags = 0;
  const Loaded l({&plain});
  AddCall call;
  call.a.dtype = call.y.dtype = BP_BF16;
  call.args.b = nullptr;
  call.args.b_scalar = {BP_I64, 0, 256};
  EXPECT_EQ(l.find(call), &plain);
  call.args.b_scalar = {BP_I64, 0, 257};
  bp_kernel_choice choice{};
  ASSERT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, &call.args, &choice), BP_OK);
  EXPECT_EQ(choice.source, BP_KERNEL_DECOMPOSED);
  EXPECT_STREQ(choice.kernel->name, "in_f32");
  const std::string text = bp::explain(*l.target, 0, BP_OP_ADD, &call.args);
  EXPECT_NE(text.find("/plain: b: bf16 does not hold the scalar, and the kernel takes no operand "
                      "in f32\n  decomposition: the op has none\n  in f32: taken"),
            text.npos)
      << text;
}

TEST(Selection, OffersATensorInAccToKernelsThatTakeIt) {
  bp_kernel plain = make_kernel("plain"), acc = make_kernel("acc");
  acc.flags |= BP_KERNEL_TAKES_ACC_OPERAND;
  const Loaded l({&plain, &acc});
  AddCall call;
  EXPECT_EQ(l.find(call), &plain);
  call.a.dtype = call.y.dtype = BP_F16;
  EXPECT_EQ(l.find(call), &acc) << "b is f32";
}

TEST(Selection, RefusesCallsThatCannotBeRead) {
  const bp_kernel kernel = make_kernel("add");
  const Loaded l({&kernel});
  bp_kernel_choice choice{};
  AddCall call;
  call.args.y = nullptr;
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, &call.args, &choice), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "add: y is NULL; it must be given");
  call.args.y = &call.y;
  call.y.ndim = 9;
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, &call.args, &choice), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "add: y has rank 9; allowed is at most 8");
  call.y.ndim = 2;
  call.args.struct_size = 16;
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, &call.args, &choice), BP_INCOMPATIBLE);
  call.args.struct_size = sizeof(bp_add_args);
  EXPECT_EQ(bp_kernel_find(l.target, 1u << 31, 0, BP_OP_ADD, &call.args, &choice), BP_UNSUPPORTED);
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, 9999, &call.args, &choice), BP_NOT_FOUND);
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, nullptr, &choice), BP_INVALID_ARGUMENT);
  EXPECT_EQ(choice.kernel, nullptr);
}

TEST(Selection, ReadsListsAsOneArgument) {
  bp_kernel kernel = make_kernel("sgd", BP_OP_SGD_STEP, sizeof(bp_sgd_step_args));
  kernel.layouts = BP_LAYOUT_CONTIGUOUS;
  const Loaded l({&kernel});
  AddCall tensors;
  StridedCall strided(1, 2);
  const bp_tensor* params[] = {&tensors.a, &tensors.b};
  const bp_tensor* grads[] = {&tensors.y, &tensors.y};
  bp_sgd_step_args args{.struct_size = sizeof(bp_sgd_step_args),
                        .params_count = 2,
                        .params = params,
                        .grads_count = 2,
                        .grads = grads,
                        .lr_scalar = {BP_F64, 0, 0},
                        .step_scalar = {BP_I64, 0, 1}};
  bp_kernel_choice choice{};
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_SGD_STEP, &args, &choice), BP_OK);
  params[1] = &strided.a;
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_SGD_STEP, &args, &choice), BP_UNSUPPORTED);
  tensors.b.dtype = BP_F64;
  params[1] = &tensors.b;
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_SGD_STEP, &args, &choice), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text()).find("params: its tensors have several dtypes"),
            std::string::npos);
}

// A call of sgd_step on one parameter. The rate is in the call, or in `lr`.
struct RateCall {
  AddCall tensors;
  bp_tensor lr = tensors.a;
  const bp_tensor* params[1] = {&tensors.a};
  const bp_tensor* grads[1] = {&tensors.b};
  bp_sgd_step_args args{.struct_size = sizeof(bp_sgd_step_args),
                        .params_count = 1,
                        .params = params,
                        .grads_count = 1,
                        .grads = grads,
                        .lr_scalar = {BP_F64, 0, 0},
                        .step_scalar = {BP_I64, 0, 1}};

  void give_rate(bp_dtype dtype) {
    lr.dtype = dtype;
    lr.ndim = 0;
    args.lr = &lr;
  }
};

// Returns a kernel of sgd_step for parameters of f32.
bp_kernel rate_kernel(const bp_dtype (&row)[2]) {
  bp_kernel kernel = make_kernel("sgd", BP_OP_SGD_STEP, sizeof(bp_sgd_step_args));
  kernel.dtype_rows = row;
  kernel.dtype_row_count = 1;
  kernel.dtype_count = 2;
  return kernel;
}

TEST(Selection, CastsARateToTheDtypeThatKernelsTake) {
  static constexpr bp_dtype kRow[] = {BP_F32, BP_F64};
  const bp_kernel kernel = rate_kernel(kRow);
  const Loaded l({&kernel});
  RateCall call;
  bp_kernel_choice choice{};
  ASSERT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_SGD_STEP, &call.args, &choice), BP_OK);
  EXPECT_EQ(choice.kernel, &kernel) << "a rate in the call fits every row";
  call.give_rate(BP_F64);
  ASSERT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_SGD_STEP, &call.args, &choice), BP_OK);
  EXPECT_EQ(choice.kernel, &kernel);
  call.give_rate(BP_F32);
  ASSERT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_SGD_STEP, &call.args, &choice), BP_OK);
  EXPECT_STREQ(choice.kernel->name, "with_cast_scalars");
  EXPECT_EQ(choice.source, BP_KERNEL_DECOMPOSED);
  const std::string text = bp::explain(*l.target, 0, BP_OP_SGD_STEP, &call.args);
  EXPECT_NE(text.find("dtypes are not claimed: params f32, lr f32"), std::string::npos) << text;
  EXPECT_NE(text.find("with cast scalars: taken"), std::string::npos) << text;
}

TEST(Selection, MakesATensorOfARateInItsFirstDtype) {
  static constexpr bp_dtype kRow[] = {BP_F32, BP_F32};
  bp_kernel kernel = rate_kernel(kRow);
  bp_kernel strict = rate_kernel(kRow);
  strict.flags = 0;
  const RateCall call;
  bp_kernel_choice choice{};
  const Loaded taking({&kernel});
  EXPECT_EQ(bp_kernel_find(taking.target, 0, 0, BP_OP_SGD_STEP, &call.args, &choice), BP_OK);
  const Loaded l({&strict});
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_SGD_STEP, &call.args, &choice), BP_UNSUPPORTED);
  EXPECT_NE(std::string(bp_error_text()).find("dtypes are not claimed: params f32, lr f64"),
            std::string::npos)
      << bp_error_text();
}

TEST(Selection, CutsTheExplanationAtTheCapacity) {
  const Loaded l({});
  const AddCall call;
  char text[8];
  uint64_t size = 0;
  ASSERT_EQ(bp_kernel_explain(l.target, 0, BP_OP_ADD, &call.args, sizeof(text), text, &size),
            BP_OK);
  EXPECT_STREQ(text, "add(a f");
  EXPECT_EQ(size, bp::explain(*l.target, 0, BP_OP_ADD, &call.args).size() + 1);
}

TEST(Selection, RefusesADtypeThatNobodyKnows) {
  const bp_kernel kernel = make_kernel("add");
  const Loaded l({&kernel});
  AddCall call;
  ASSERT_EQ(l.find(call), &kernel);
  for (const bp_dtype dtype : {bp_dtype{0}, bp_dtype{BP_U2 + 1}, bp_dtype{256 + BP_F32},
                               bp_dtype{0x10000 + BP_F32}, bp_dtype{0x80000000 + BP_F32}}) {
    call.b.dtype = dtype;
    const auto expect_refusal = [&](bp_status status, const char* what) {
      EXPECT_EQ(status, BP_INVALID_ARGUMENT) << what << " of dtype " << dtype;
      const std::string text = bp_error_text();
      EXPECT_NE(text.find("b has dtype " + std::to_string(dtype)), text.npos) << what << text;
      bp_error_clear();
    };
    bp_kernel_choice choice{};
    expect_refusal(bp_kernel_find(l.target, 0, 0, BP_OP_ADD, &call.args, &choice), "find");
    expect_refusal(bp_op_launch(l.target, nullptr, 0, BP_OP_ADD, &call.args), "launch");
    expect_refusal(bp_kernel_launch(l.target, nullptr, 0, &kernel, &call.args), "kernel_launch");
    bp_prepared* prepared = nullptr;
    expect_refusal(
        bp_op_prepare(l.target, nullptr, 0, BP_OP_ADD, &call.args, nullptr, 0, &prepared),
        "prepare");
    uint64_t size = 0;
    expect_refusal(bp_kernel_explain(l.target, 0, BP_OP_ADD, &call.args, 0, nullptr, &size),
                   "explain");
    EXPECT_EQ(bp_op_check(BP_OP_ADD, &call.args), BP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(bp_error_text()).find(": b "), std::string::npos) << bp_error_text();
    bp_op_output output{};
    uint32_t count = 0;
    EXPECT_EQ(bp_op_infer(BP_OP_ADD, &call.args, 1, &output, &count), BP_INVALID_ARGUMENT);
  }
}

TEST(Selection, RefusesAScalarOfADtypeThatScalarsDoNotHave) {
  bp_kernel kernel = make_kernel("add");
  for (const bp_kernel_flags flags : {bp_kernel_flags{BP_KERNEL_TAKES_SCALAR}, 0u}) {
    kernel.flags = flags;
    const Loaded l({&kernel});
    AddCall call;
    call.args.b = nullptr;
    for (const bp_dtype dtype : {bp_dtype{0}, bp_dtype{BP_F32}, bp_dtype{256 + BP_F64}}) {
      call.args.b_scalar = {dtype, 0, 0};
      EXPECT_EQ(bp_op_launch(l.target, nullptr, 0, BP_OP_ADD, &call.args), BP_INVALID_ARGUMENT);
      EXPECT_EQ(bp_error_text(), "add: b is a scalar of dtype " + std::to_string(dtype) +
                                     "; allowed are bool, i64, u64 and f64, or a tensor in its "
                                     "place");
    }
    for (const bp_dtype dtype : {BP_BOOL, BP_I64, BP_U64, BP_F64}) {
      call.args.b_scalar = {dtype, 0, 1};
      EXPECT_EQ(bp_op_launch(l.target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK)
          << bp_error_text();
    }
  }
}

TEST(Selection, RefusesAnImaginaryPartWhereNothingIsComplex) {
  bp_kernel kernel = make_kernel("add");
  kernel.flags = BP_KERNEL_TAKES_SCALAR;
  const Loaded l({&kernel});
  AddCall call;
  call.args.b = nullptr;
  call.args.b_scalar = {BP_I64, 0, 1, 1};
  EXPECT_EQ(bp_op_launch(l.target, nullptr, 0, BP_OP_ADD, &call.args), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(),
               "add: b is a scalar of i64 with imaginary_bits; allowed is 0, unless the dtype is "
               "c128");
  call.args.b_scalar = {BP_C128, 0, 0, 0};
  EXPECT_EQ(bp_op_launch(l.target, nullptr, 0, BP_OP_ADD, &call.args), BP_INVALID_ARGUMENT);
  EXPECT_STREQ(bp_error_text(), "add: b is a complex scalar, and its argument is not complex");
}

TEST(Selection, RefusesADtypeThatNobodyKnowsInAList) {
  const bp_kernel kernel = make_kernel("cat", BP_OP_CAT, sizeof(bp_cat_args));
  const Loaded l({&kernel});
  AddCall call;
  call.b.dtype = 256 + BP_F32;
  const bp_tensor* xs[] = {&call.a, &call.b};
  const bp_cat_args args{.struct_size = sizeof(args), .xs_count = 2, .xs = xs, .y = &call.y};
  bp_kernel_choice choice{};
  EXPECT_EQ(bp_kernel_find(l.target, 0, 0, BP_OP_CAT, &args, &choice), BP_INVALID_ARGUMENT);
  EXPECT_NE(std::string(bp_error_text()).find("xs has dtype 270"), std::string::npos)
      << bp_error_text();
}

TEST(Selection, KeepsEveryFactOfATensorApart) {
  Key key;
  bool has_null = false;
  AddCall call;
  call.b.byte_offset = 4096;
  call.b.dtype = BP_U2;
  int64_t ones[BP_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
  call.b.shape = call.b.strides = ones;
  call.b.ndim = BP_MAX_RANK;
  call.b.layout = reinterpret_cast<const bp_layout*>(&key);
  ASSERT_EQ(read_call(*find_op(BP_OP_ADD), 0, &call.args, key, &has_null), BP_OK);
  const Fact fact = key.fact(1);
  EXPECT_EQ(dtype_of(fact), BP_U2);
  EXPECT_EQ(classes_of(fact), kOpaqueClass);
  EXPECT_EQ(rank_of(fact), BP_MAX_RANK);
  EXPECT_EQ(alignment_of(fact), 4096u);
  EXPECT_EQ(fact & kDiffers, 0u);
  EXPECT_NE(fact & kHasOneElement, 0u);
}

TEST(Selection, RemembersMoreChoicesThanItsFirstTableHolds) {
  const bp_kernel kernel = make_kernel("add");
  const Loaded l({&kernel});
  AddCall call;
  for (int round = 0; round < 2; ++round) {
    for (bp_dtype dtype = 1; dtype <= BP_U2; ++dtype) {
      for (uint64_t offset = 1; offset <= 4096; offset *= 2) {
        for (bp_tensor* t : {&call.a, &call.b}) {
          call.a.dtype = call.b.dtype = dtype;
          t->byte_offset = offset;
          ASSERT_EQ(l.find(call), &kernel);
        }
      }
    }
  }
}

TEST(Selection, ServesThreadsWhilePluginsComeAndGo) {
  const bp_kernel kernel = make_kernel("add");
  Loaded l({&kernel});
  std::atomic<bool> is_done = false;
  std::vector<std::thread> threads;
  threads.reserve(3);
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&l, &is_done, &kernel] {
      AddCall call;
      for (uint64_t offset = 0; !is_done; offset = (offset + 4) % 64) {
        call.a.byte_offset = offset;
        EXPECT_EQ(l.find(call), &kernel);
        EXPECT_EQ(bp_op_launch(l.target, nullptr, 0, BP_OP_ADD, &call.args), BP_OK);
      }
    });
  }
  for (int i = 0; i < 50; ++i) {
    FakeBackend other("acme.other", 1, BP_DEVICE_HOST);
    const bp_plugin* plugin = nullptr;
    EXPECT_EQ(other.load(l.r.registry, &plugin), BP_OK);
    EXPECT_EQ(bp_registry_unload(l.r.registry, plugin, UINT64_MAX), BP_OK);
  }
  is_done = true;
  for (std::thread& thread : threads) thread.join();
}

// Calls of different kinds must have different keys.
TEST(Key, DiffersWhereSelectionMay) {
  const OpRow& row = *find_op(BP_OP_ADD);
  AddCall call;
  Key plain, other;
  bool has_null = false;
  ASSERT_EQ(read_call(row, 0, &call.args, plain, &has_null), BP_OK);
  call.args.b = nullptr;
  call.args.b_scalar = {BP_I64, 0, 2};
  ASSERT_EQ(read_call(row, 0, &call.args, other, &has_null), BP_OK);
  EXPECT_FALSE(plain == other);
  EXPECT_EQ(dtype_of(plain.fact(1)), BP_F32);
  EXPECT_EQ(rank_of(plain.fact(2)), 2);
  EXPECT_EQ(alignment_of(plain.fact(0)), 4096);
  EXPECT_EQ(other.fact(1), 0);
}

}  // namespace
}  // namespace bp::core

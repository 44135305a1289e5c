// Tests what a host asks of a compilation, besides the program.
#include <algorithm>
#include <array>

#include "backends/shell/test_compiler.hpp"

namespace bp {
namespace {

using Values = std::vector<float>;

class CompileRequestTest : public ProgramTest {
 protected:
  // t = -x; y = t + c
  CompileRequestTest() {
    maker.add_neg(x, t);
    maker.add_add(t, c, y);
    add.prepare = [](const bp_kernel* self, bp_device*, const bp_prepare_desc*, const void*,
                     bp_plan**) -> bp_status {
      ++static_cast<CompileRequestTest&>(of(self)).plans;
      return BP_UNSUPPORTED;
    };
  }

  bp_status compile_with(const std::vector<bp_option>& options,
                         bp_should_stop_fn* should_stop = nullptr, void* user_data = nullptr) {
    bp_compile_desc desc = *maker.desc();
    desc.options = options.data();
    desc.option_count = options.size();
    desc.should_stop = should_stop;
    desc.user_data = user_data;
    executable = nullptr;
    const bp_status status = ops.compile(ops.self, device.handle(), &desc, &executable);
    EXPECT_EQ(executable == nullptr, status != BP_OK);
    return status;
  }

  const Values data{10, 20, 30, 40};
  int plans = 0;
  bp_executable* executable = nullptr;
  ProgramMaker maker;
  const uint32_t x = maker.add_value(BP_VALUE_INPUT), c = maker.add_constant(data),
                 t = maker.add_value(BP_VALUE_TEMPORARY), y = maker.add_value(BP_VALUE_OUTPUT);
};

TEST_F(CompileRequestTest, MakesPlansUnlessAnOptionSaysNo) {
  EXPECT_EQ(compile_with({}), BP_OK);
  EXPECT_EQ(compile_with({{"plans", "yes"}}), BP_OK);
  EXPECT_EQ(plans, 2);
  EXPECT_EQ(compile_with({{"plans", "no"}}), BP_OK);
  EXPECT_EQ(plans, 2);
  EXPECT_EQ(run(executable, maker, {{1, 2, 3, 4}})[1], (Values{9, 18, 27, 36}));
  uint64_t size_bytes = 0;
  EXPECT_EQ(ops.serialize(ops.self, executable, 0, nullptr, &size_bytes), BP_OK);
  std::vector<std::byte> bytes(size_bytes);
  EXPECT_EQ(ops.serialize(ops.self, executable, size_bytes, bytes.data(), &size_bytes), BP_OK);
  EXPECT_EQ(
      ops.deserialize(ops.self, device.handle(), bytes.data(), size_bytes, nullptr, &executable),
      BP_OK);
  EXPECT_EQ(plans, 2) << "the bytes hold the option";
}

TEST_F(CompileRequestTest, NamesTheOptionThatItRefuses) {
  EXPECT_EQ(compile_with({{"plans", "no"}, {"tiles", "8"}}), BP_NOT_FOUND);
  EXPECT_EQ(device.text,
            "compile: options[1]: the compiler has no option \"tiles\"; allowed are: plans");
  EXPECT_EQ(compile_with({{"plans", "some"}}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "compile: options[0]: plans is \"some\"; allowed are: yes, no");
  EXPECT_EQ(compile_with({{"plans", nullptr}}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "compile: options[0] has no key or no value");
  bp_compile_desc desc = *maker.desc();
  desc.option_count = 1;
  EXPECT_EQ(ops.compile(ops.self, device.handle(), &desc, &executable), BP_INVALID_ARGUMENT);
  EXPECT_EQ(device.text, "compile: options is NULL");
}

TEST_F(CompileRequestTest, StopsAtEachOfItsSteps) {
  struct Stop {
    int calls, last;
    static uint32_t ask(void* self) {
      auto& s = *static_cast<Stop*>(self);
      return ++s.calls == s.last ? 1 : 0;
    }
  };
  Stop never{};
  EXPECT_EQ(compile_with({}, Stop::ask, &never), BP_OK);
  EXPECT_EQ(ops.release(ops.self, executable), BP_OK);
  EXPECT_EQ(never.calls, 5) << "the beginning, two nodes, the upload, and a plan";
  for (int call = 1; call <= never.calls; ++call) {
    Stop stop{.calls = 0, .last = call};
    EXPECT_EQ(compile_with({}, Stop::ask, &stop), BP_ABORTED);
    EXPECT_EQ(device.text, "compile: should_stop() stopped it");
    EXPECT_EQ(stop.calls, call);
    EXPECT_EQ(device.live_count(), 0u);
  }
}

// ---- Fingerprints and bytes ---------------------------------------------------------------------

using Words = std::array<uint64_t, 2>;

class FingerprintTest : public CompileRequestTest {
 protected:
  FingerprintTest() {
    add.prepare = nullptr;
    offer({&neg, &add});
  }
  Words fingerprint(const std::function<void(bp_compile_desc&)>& change = nullptr) {
    bp_compile_desc desc = *maker.desc();
    if (change) change(desc);
    Words words{};
    EXPECT_EQ(ops.fingerprint(ops.self, device.handle(), &desc, words.data()), BP_OK)
        << device.text;
    return words;
  }
  std::vector<std::byte> bytes() {
    EXPECT_EQ(compile_with({}), BP_OK);
    uint64_t size_bytes = 0;
    EXPECT_EQ(ops.serialize(ops.self, executable, 0, nullptr, &size_bytes), BP_OK);
    std::vector<std::byte> all(size_bytes);
    EXPECT_EQ(ops.serialize(ops.self, executable, size_bytes, all.data(), &size_bytes), BP_OK);
    return all;
  }
  // Returns the text of the refusal.
  std::string refusal(const std::vector<std::byte>& given) {
    EXPECT_EQ(ops.validate(ops.self, device.handle(), given.data(), given.size()), BP_INCOMPATIBLE);
    return device.text;
  }
};

TEST_F(FingerprintTest, IsTheSameInEveryProcess) {
  Fingerprint known;
  known.add(std::string_view("acme.chip"));
  known.add(7);
  EXPECT_EQ(known.value(), (Words{10851817697951717273u, 15768548268160967189u}));
  EXPECT_EQ(fingerprint([](bp_compile_desc& d) { d.user_data = &d; }), fingerprint());
}

TEST_F(FingerprintTest, DiffersWithAllThatChangesTheExecutable) {
  static constexpr bp_option kPlans[] = {{"plans", "no"}};
  std::vector<Words> all{fingerprint()};
  all.push_back(fingerprint([](bp_compile_desc& d) { d.flags = BP_LAUNCH_STRICT_F32; }));
  all.push_back(fingerprint([](bp_compile_desc& d) {
    d.options = kPlans;
    d.option_count = 1;
  }));
  neg.name = "neg.wide";
  all.push_back(fingerprint());
  offer({&neg, &add}, "test 2");
  all.push_back(fingerprint());
  const Values changed{10, 20, 30, 41};
  maker.values[c].data = changed.data();
  all.push_back(fingerprint());
  maker.add_neg(y, y);
  all.push_back(fingerprint());
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(std::ranges::count(all, all[i]), 1) << i;
  }
}

TEST_F(FingerprintTest, NamesTheNodeThatNoKernelTakes) {
  offer({&neg});
  Words words{7, 7};
  EXPECT_EQ(ops.fingerprint(ops.self, device.handle(), maker.desc(), words.data()), BP_UNSUPPORTED);
  EXPECT_EQ(device.text, "fingerprint: node 1: add: the device has no kernel for the op");
  EXPECT_EQ(words, (Words{7, 7}));
}

TEST_F(FingerprintTest, SaysWhyBytesAreNotValid) {
  const std::vector<std::byte> good = bytes();
  EXPECT_EQ(ops.validate(ops.self, device.handle(), good.data(), good.size()), BP_OK);
  const size_t live_count = device.live_count();
  std::vector<std::byte> changed = good;
  changed.back() ^= std::byte{1};
  EXPECT_EQ(refusal(changed), "validate: the checksum does not match; the bytes were changed");
  changed.resize(good.size() - 8);
  EXPECT_EQ(refusal(changed), "validate: what was written has " + std::to_string(good.size()) +
                                  " bytes, and " + std::to_string(changed.size()) + " are given");
  changed.resize(7);
  EXPECT_EQ(refusal(changed), "validate: the 7 bytes are not what this compiler writes");
  device.name = "Acme X2";
  EXPECT_EQ(refusal(good), "validate: the bytes are for another device than Acme X2");
  offer({&neg, &add}, "test 2");
  EXPECT_EQ(refusal(good), "validate: the bytes are not of this build of test 2");
  EXPECT_LE(device.live_count(), live_count);
}

}  // namespace
}  // namespace bp

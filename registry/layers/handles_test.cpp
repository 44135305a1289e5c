// Tests what layers share: live and ended handles, options, globs, names, rules of faults, and
// texts.
#include "registry/layers/handles.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "backplane/ops.h"
#include "registry/boundary/error_slot.hpp"
#include "registry/layers/fault_rules.hpp"
#include "registry/layers/json_text.hpp"
#include "registry/layers/options.hpp"
#include "registry/layers/record_numbers.hpp"
#include "registry/layers/words.hpp"

namespace bp::layers {
namespace {

// ---- Handles ------------------------------------------------------------------------------------

class EndedHandles : public testing::Test {
 protected:
  const void* handle(size_t i) const { return bytes_ + i; }
  void cycle(size_t i, HandleKind kind = HandleKind::buffer) {
    handles.add(kind, handle(i), {});
    handles.end(kind, handle(i), "memory.deallocate", Site::here());
  }
  bool was_ended(size_t i) const {
    const std::string defect = handles.defect(HandleKind::buffer, handle(i));
    const bool is_known = defect.find("was ended before, by memory.deallocate") != defect.npos;
    EXPECT_TRUE(is_known || defect.find("[MEMORY-1] ") == 0) << defect;
    return is_known;
  }

  Handles handles;

 private:
  char bytes_[5'000] = {};
};

TEST_F(EndedHandles, AreKnownAlsoWhereTheirAddressWasUsedManyTimes) {
  for (int i = 0; i < 5'000; ++i) {
    cycle(0);
    ASSERT_TRUE(was_ended(0)) << "after " << i + 1 << " uses of the address";
  }
}

TEST_F(EndedHandles, AreForgottenOldestFirst) {
  constexpr size_t kMost = 4096;
  for (size_t i = 0; i < kMost; ++i) cycle(i);
  EXPECT_TRUE(was_ended(0));
  cycle(0);
  cycle(kMost);
  EXPECT_TRUE(was_ended(0)) << "it ended again since";
  EXPECT_FALSE(was_ended(1)) << "it is the oldest now";
  EXPECT_TRUE(was_ended(kMost));
}

TEST_F(EndedHandles, AreAliveAgainWhereTheirAddressIs) {
  cycle(3);
  EXPECT_EQ(handles.find(HandleKind::buffer, handle(3)), nullptr);
  handles.add(HandleKind::buffer, handle(3), {.size_bytes = 64});
  ASSERT_NE(handles.find(HandleKind::buffer, handle(3)), nullptr);
  EXPECT_EQ(handles.find(HandleKind::buffer, handle(3))->size_bytes, 64u);
  EXPECT_FALSE(was_ended(3)) << "the end of the one before says nothing about this one";
}

TEST_F(EndedHandles, OfOneKindAreNotThoseOfAnother) {
  cycle(5, HandleKind::stream);
  EXPECT_FALSE(was_ended(5));
  EXPECT_EQ(handles.defect(HandleKind::stream, handle(5)).find("[STREAM-11] stream 0x"), 0u);
  EXPECT_EQ(handles.defect(HandleKind::event, handle(5)).find("[EVENT-2] event 0x"), 0u);
}

TEST_F(EndedHandles, AreNotThoseThatAResetLostUntilTheHostEndsThem) {
  auto* const device = reinterpret_cast<bp_device*>(&handles);
  handles.add(HandleKind::buffer, handle(1), {.device = device});
  handles.add(HandleKind::buffer, handle(2), {});
  handles.add(HandleKind::stream, handle(3), {.device = device, .is_lent = true});
  handles.lose_all(device);
  EXPECT_EQ(handles.find(HandleKind::buffer, handle(1)), nullptr);
  EXPECT_NE(handles.find(HandleKind::buffer, handle(2)), nullptr);
  EXPECT_NE(handles.find(HandleKind::stream, handle(3)), nullptr);
  EXPECT_TRUE(handles.is_lost(HandleKind::buffer, handle(1)));
  EXPECT_FALSE(handles.is_lost(HandleKind::buffer, handle(2)));
  EXPECT_FALSE(handles.is_lost(HandleKind::stream, handle(3)));
  handles.end(HandleKind::buffer, handle(1), "memory.deallocate", Site::here());
  EXPECT_FALSE(handles.is_lost(HandleKind::buffer, handle(1)));
  EXPECT_TRUE(was_ended(1));
}

// ---- Options ------------------------------------------------------------------------------------

TEST(LayerOptions, AreNumbersWithinTheirBound) {
  const struct {
    const char* text;
    bp_status status;
    uint64_t value;
  } rows[] = {
      {"0", BP_OK, 0},
      {"10", BP_OK, 10},
      {"007", BP_OK, 7},
      {"11", BP_INVALID_ARGUMENT, 3},
      {"-1", BP_INVALID_ARGUMENT, 3},
      {"+1", BP_INVALID_ARGUMENT, 3},
      {" 1", BP_INVALID_ARGUMENT, 3},
      {"1 ", BP_INVALID_ARGUMENT, 3},
      {"0x1", BP_INVALID_ARGUMENT, 3},
      {"", BP_INVALID_ARGUMENT, 3},
      {"18446744073709551616", BP_INVALID_ARGUMENT, 3},
  };
  for (const auto& [text, status, expected] : rows) {
    Options options;
    options.set("most", text);
    uint64_t value = 3;
    EXPECT_EQ(options.number("fault", "most", 10, value), status) << "'" << text << "'";
    EXPECT_EQ(value, expected) << "'" << text << "'";
    if (status == BP_OK) continue;
    EXPECT_EQ(core::take_error(), "layer option fault.most is '" + std::string(text) +
                                      "', allowed are numbers up to 10");
  }
  uint64_t value = 3;
  EXPECT_EQ(Options().number("fault", "most", 10, value), BP_OK);
  EXPECT_EQ(value, 3u) << "what is not given stays";
}

TEST(LayerOptions, AreListsWithoutEmptyParts) {
  Options options;
  options.set("a", ":f32::f64:");
  options.set("b", ":");
  EXPECT_EQ(options.list("a"), (std::vector<std::string>{"f32", "f64"}));
  EXPECT_EQ(options.list("b"), std::vector<std::string>());
  EXPECT_EQ(options.list("c"), std::vector<std::string>());
}

TEST(Globs, FitWhatTheyDescribe) {
  const struct {
    const char* text;
    const char* pattern;
    bool fits;
  } rows[] = {
      {"", "", true},
      {"", "*", true},
      {"", "?", false},
      {"add", "add", true},
      {"add", "ad", false},
      {"add", "addd", false},
      {"add.fast", "add.*", true},
      {"add.", "add.*", true},
      {"add", "add.*", false},
      {"add", "a?d", true},
      {"abab", "*ab", true},
      {"ababc", "*ab", false},
      {"mississippi", "m*iss*p?", true},
      {"mississippi", "m*iss*x*", false},
      {"a*b", "a*b", true},
      {"aab", "**a**b**", true},
  };
  for (const auto& [text, pattern, fits] : rows) {
    EXPECT_EQ(fits_glob(text, pattern), fits) << "'" << text << "' and '" << pattern << "'";
  }
  const std::string many(2'000, 'a');
  EXPECT_FALSE(fits_glob(many, "*a*a*a*a*b")) << "which takes a moment, not an hour";
}

TEST(FileNames, HoldTheBackendAndTheProcess) {
  const std::string process = std::to_string(getpid());
  EXPECT_EQ(with_names("run.%b.%p.json", "acme.npu"), "run.acme.npu." + process + ".json");
  EXPECT_EQ(with_names("%b%b", "%p"), "%p%p") << "a name is not read again";
  EXPECT_EQ(with_names("100%", "acme.npu"), "100%");
  EXPECT_EQ(with_names("%%b %x", "a"), "%a %x");
  EXPECT_EQ(with_names("", "a"), "");
}

TEST(JsonTexts, AreReadAsWhatWasWritten) {
  const std::string odd = "\"quoted\" \\ \n\t\x01 \u00e4";
  JsonText text;
  EXPECT_EQ(nlohmann::json::parse(text.text()), nlohmann::json::object());
  text.add(odd, odd);
  text.add("number", uint64_t{18446744073709551615u});
  const nlohmann::json read = nlohmann::json::parse(text.text());
  EXPECT_EQ(read.at(odd), odd);
  EXPECT_EQ(read.at("number"), 18446744073709551615u);
}

// ---- Numbers of a recording ---------------------------------------------------------------------

TEST(RecordedNumbers, AreNeverGivenTwiceAlthoughHandlesAre) {
  Numbers<bp_stream, RecordedStream> numbers;
  const auto* const handle = reinterpret_cast<const bp_stream*>(&numbers);
  EXPECT_EQ(numbers.number(handle), 0u);
  EXPECT_EQ(numbers.add(handle).number, 1u);
  EXPECT_EQ(numbers.take(handle), 1u);
  EXPECT_EQ(numbers.take(handle), 0u) << "it has ended";
  RecordedStream& second = numbers.add(handle);
  EXPECT_EQ(second.number, 2u);
  second.device = reinterpret_cast<bp_device*>(&numbers);
  EXPECT_EQ(numbers.add(handle).device, nullptr) << "the facts of the one before are not its own";
  EXPECT_EQ(numbers.number(handle), 3u);
  numbers.clear();
  EXPECT_EQ(numbers.find(handle), nullptr);
  EXPECT_EQ(numbers.add(handle).number, 4u);
}

// ---- When faults strike -------------------------------------------------------------------------

std::vector<uint64_t> strikes(FaultRules& rules, int calls, std::string_view slot,
                              std::string_view kernel = "") {
  std::vector<uint64_t> struck;
  for (int i = 0; i < calls; ++i) {
    const uint64_t call = rules.strike(slot, kernel);
    if (call != 0) struck.push_back(call);
  }
  return struck;
}

TEST(FaultRulesOfLayers, StrikeAtTheCallsThatTheyName) {
  FaultRules rules;
  ASSERT_EQ(rules.read("at", "memory.allocate@3:stream.*@2+", 1), BP_OK) << core::take_error();
  EXPECT_FALSE(rules.is_empty());
  EXPECT_EQ(strikes(rules, 6, "memory.allocate"), (std::vector<uint64_t>{3}));
  EXPECT_EQ(strikes(rules, 2, "memory.deallocate"), std::vector<uint64_t>());
  EXPECT_EQ(strikes(rules, 2, "stream.create"), (std::vector<uint64_t>{2}));
  EXPECT_EQ(strikes(rules, 2, "stream.destroy"), (std::vector<uint64_t>{3, 4}))
      << "calls of all slots that fit are counted together";
}

TEST(FaultRulesOfLayers, CountEachRuleByItself) {
  FaultRules rules;
  ASSERT_EQ(rules.read("at", "kernel.launch/soft*@2:kernel.launch@3", 1), BP_OK);
  EXPECT_EQ(rules.strike("kernel.launch", "add"), 0u);
  EXPECT_EQ(rules.strike("kernel.launch", "softmax"), 0u);
  EXPECT_EQ(rules.strike("kernel.launch", "softplus"), 2u) << "the number of the first that fits";
  EXPECT_EQ(rules.strike("kernel.launch", "softmax"), 0u);
}

TEST(FaultRulesOfLayers, DrawTheSameCallsFromTheSameSeed) {
  const auto drawn = [](uint64_t seed) {
    FaultRules rules;
    EXPECT_EQ(rules.read("at", "memory.deallocate@1/10", seed), BP_OK);
    return strikes(rules, 1000, "memory.deallocate");
  };
  EXPECT_EQ(drawn(5), drawn(5));
  EXPECT_NE(drawn(5), drawn(6));
  EXPECT_GT(drawn(5).size(), 60u);
  EXPECT_LT(drawn(5).size(), 140u);
  FaultRules always;
  ASSERT_EQ(always.read("at", "memory.deallocate@1/1", 0), BP_OK);
  EXPECT_EQ(strikes(always, 3, "memory.deallocate"), (std::vector<uint64_t>{1, 2, 3}));
}

TEST(FaultRulesOfLayers, RefuseWhatCanNeverStrike) {
  for (const char* text :
       {"memory.deallocate", "@3", "memory.deallocate@", "memory.deallocate@0",
        "memory.deallocate@-1", "memory.deallocate@3++", "memory.deallocate@1/0",
        "memory.deallocate@1/", "memory.deallocate@x", "memory.deallocate@99999999999999999999"}) {
    FaultRules rules;
    EXPECT_EQ(rules.read("at", text, 0), BP_INVALID_ARGUMENT) << text;
    EXPECT_EQ(core::take_error().find("layer option fault.at: '" + std::string(text) +
                                      "' is not GLOB@WHEN"),
              0u)
        << text;
  }
  FaultRules rules;
  EXPECT_EQ(rules.read("at", "memory.fre@1", 0), BP_INVALID_ARGUMENT);
  EXPECT_EQ(core::take_error(),
            "layer option fault.at: 'memory.fre' matches no slot; give the name of one, such as "
            "memory.allocate");
}

// ---- Words --------------------------------------------------------------------------------------

TEST(Words, TellWhatABadTensorHasWithoutReadingPastIt) {
  const int64_t shape[] = {2, 3}, apart[] = {8, 1};
  bp_tensor tensor{.shape = shape, .strides = apart, .ndim = 2, .dtype = BP_F32};
  EXPECT_EQ(words(tensor), "f32[2, 3] strides [8, 1]");
  tensor.strides = nullptr;
  EXPECT_EQ(words(tensor), "f32[2, 3]");
  tensor.shape = nullptr;
  tensor.dtype = 999;
  EXPECT_EQ(words(tensor), "dtype 999[]");
  const int64_t many[BP_MAX_RANK] = {1, 2, 3, 4, 5, 6, 7, 8};
  tensor.shape = tensor.strides = many;
  tensor.ndim = 1000;
  EXPECT_EQ(words(tensor), "dtype 999[1, 2, 3, 4, 5, 6, 7, 8]");
  EXPECT_EQ(words(static_cast<const void*>(nullptr)), "NULL");
  EXPECT_EQ(words(bp_buffer_ref{nullptr, 8, 16}), "NULL[8, 24)");
}

TEST(Words, TellOfAttributesByName) {
  const int64_t axes[] = {1, 0};
  bp_sum_args sum{.struct_size = sizeof(sum), .axes_count = 2, .axes = axes, .keepdims = 1};
  EXPECT_EQ(attribute_words(BP_OP_SUM, &sum), "axes [1, 0], keepdims 1");
  sum.axes = nullptr;
  EXPECT_EQ(attribute_words(BP_OP_SUM, &sum), "axes [], keepdims 1");
  bp_gelu_args gelu{.struct_size = sizeof(gelu), .approximation = BP_GELU_APPROXIMATION_TANH};
  EXPECT_EQ(attribute_words(BP_OP_GELU, &gelu), "approximation tanh");
  gelu.approximation = 77;
  EXPECT_EQ(attribute_words(BP_OP_GELU, &gelu), "approximation 77");
  gelu.struct_size = 8;
  EXPECT_EQ(attribute_words(BP_OP_GELU, &gelu), "");
  EXPECT_EQ(attribute_words(BP_OP_GELU, nullptr), "");
  EXPECT_EQ(attribute_words(9999, &gelu), "");
}

TEST(Words, TellOfFramesOnlyWhatTheyHold) {
  const int64_t shape[] = {2}, strides[] = {1};
  const bp_tensor a{.shape = shape, .strides = strides, .ndim = 1, .dtype = BP_F32};
  bp_add_args args{.struct_size = sizeof(args), .a = &a, .y = &a};
  EXPECT_EQ(frame_words(BP_OP_ADD, &args), "a f32[2], y f32[2]");
  args.struct_size = 8;
  EXPECT_EQ(frame_words(BP_OP_ADD, &args), "") << "it is shorter than the op's";
  EXPECT_EQ(frame_words(BP_OP_ADD, nullptr), "");
  EXPECT_EQ(frame_words(9999, &args), "");
  EXPECT_EQ(op_words(9999), "op 9999");
  EXPECT_EQ(status_words(-7), "vendor status -7");
  EXPECT_EQ(status_words(BP_OUT_OF_MEMORY), "out of memory");
}

}  // namespace
}  // namespace bp::layers

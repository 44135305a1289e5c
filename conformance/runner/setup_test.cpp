// What a supervisor tells its worker, and what the worker says of a case: both are texts that a
// backend, or a file of an earlier run, may have spoiled.
#include "conformance/runner/setup.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "conformance/json_file.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

// Sends a document through its text, as the protocol does.
json through_text(const json& document) { return json::parse(json_text(document)); }

WorkerSetup full_setup() {
  WorkerSetup setup;
  setup.plugin = "/lib/\xff.so";
  setup.device = "acme.npu:1";
  setup.options = {{"threads", "2"}, {"path", "a\xc3=\n"}, {"threads", ""}};
  setup.layers = "validate,trace";
  setup.layer_options = "trace.file=\xfe";
  setup.transport = "/lib/cpu.so";
  setup.case_options = {.canary_bytes = 1 << 20, .poison = "random", .launch_patience_ms = 7};
  setup.allows_decompositions = true;
  setup.tells_device_memory = true;
  setup.perf = {.cache_bytes = uint64_t{1} << 40, .min_seconds = 0.25};
  setup.recording = {"/records/\xe4", true, true, UINT64_MAX};
  setup.parent = INT32_MAX;
  return setup;
}

std::string setup_refusal(const json& document) {
  try {
    static_cast<void>(worker_setup_from_json(document, "the setup"));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

std::string result_refusal(const char* text) {
  try {
    static_cast<void>(result_from_json(json::parse(text), "END"));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(WorkerSetups, ComeThroughTextWithEveryByte) {
  const WorkerSetup given = full_setup();
  const WorkerSetup back = worker_setup_from_json(through_text(to_json(given)), "the setup");
  EXPECT_EQ(back.plugin, given.plugin);
  EXPECT_EQ(back.device, given.device);
  EXPECT_EQ(back.options, given.options) << "in their order, and a key may come twice";
  EXPECT_EQ(back.layers, given.layers);
  EXPECT_EQ(back.layer_options, given.layer_options);
  EXPECT_EQ(back.transport, given.transport);
  EXPECT_EQ(back.case_options.canary_bytes, given.case_options.canary_bytes);
  EXPECT_EQ(back.case_options.poison, given.case_options.poison);
  EXPECT_EQ(back.case_options.launch_patience_ms, given.case_options.launch_patience_ms);
  EXPECT_EQ(back.allows_decompositions, given.allows_decompositions);
  EXPECT_EQ(back.tells_device_memory, given.tells_device_memory);
  EXPECT_EQ(back.perf.cache_bytes, given.perf.cache_bytes);
  EXPECT_EQ(back.perf.min_seconds, given.perf.min_seconds);
  EXPECT_EQ(back.recording.path, given.recording.path);
  EXPECT_TRUE(back.recording.seeds_weights && back.recording.is_partial);
  EXPECT_EQ(back.recording.seed, UINT64_MAX);
  EXPECT_EQ(back.parent, INT32_MAX);
}

TEST(WorkerSetups, MayLackWhatAnOlderSuiteDidNotSave) {
  json old = to_json(full_setup());
  for (const char* key : {"layers", "layer_options", "replay", "seeds_weights", "is_partial",
                          "replay_seed", "transport", "parent", "launch_patience_ms"}) {
    old.erase(key);
  }
  const WorkerSetup back = worker_setup_from_json(old, "the setup");
  EXPECT_EQ(back.layers + back.layer_options + back.transport + back.recording.path, "");
  EXPECT_FALSE(back.recording.seeds_weights || back.recording.is_partial);
  EXPECT_EQ(back.recording.seed, 0u);
  EXPECT_EQ(back.parent, 0);
  EXPECT_EQ(back.case_options.launch_patience_ms, CaseOptions().launch_patience_ms);
}

TEST(WorkerSetups, AreRefusedWhereSomethingIsMissing) {
  for (const char* key :
       {"plugin", "device", "options", "canary_bytes", "poison", "cache_bytes", "min_seconds"}) {
    json cut = to_json(full_setup());
    cut.erase(key);
    EXPECT_TRUE(setup_refusal(cut).starts_with("the setup: there is no \"" + std::string(key)))
        << setup_refusal(cut);
  }
}

TEST(WorkerSetups, AreRefusedBeyondTheirLimits) {
  const auto refusal = [](const char* key, const json& value) {
    json changed = to_json(full_setup());
    changed[key] = value;
    return setup_refusal(changed);
  };
  const auto expect = [&](const char* key, const json& value, const std::string& problem) {
    const std::string text = refusal(key, value);
    EXPECT_TRUE(text.starts_with("the setup: \"" + std::string(key) + "\" is " + problem)) << text;
  };
  expect("canary_bytes", (1 << 20) + 1, "the number 1048577; an integer from 0 to 1048576");
  expect("canary_bytes", -1, "the number -1; an integer");
  expect("cache_bytes", (uint64_t{1} << 40) + 1, "the number 1099511627777; an integer");
  expect("min_seconds", 1.0001e8, "the number 100010000.0; a number from 0 to 1e+08");
  expect("min_seconds", nullptr, "null; a number");  // JSON has no other way to write a NaN.
  expect("launch_patience_ms", 3600001, "the number 3600001; an integer from 0 to 3600000");
  expect("parent", uint64_t{INT32_MAX} + 1, "the number 2147483648; an integer");
  expect("poison", 7, "the number 7; a text");
  expect("is_partial", "yes", "a text; true or false");
  EXPECT_EQ(refusal("canary_bytes", 0), "");
  EXPECT_EQ(refusal("min_seconds", kMostSeconds), "");
}

TEST(WorkerSetups, TakeOptionsThatArePairsOfTextsAlone) {
  json setup = to_json(full_setup());
  for (const char* options :
       {R"([["a"]])", R"([["a","b","c"]])", R"([["a",1]])", R"(["a"])", R"([["a","b"],{}])"}) {
    setup["options"] = json::parse(options);
    const std::string text = setup_refusal(setup);
    EXPECT_NE(text.find("a list of text pairs is needed"), std::string::npos) << options << text;
  }
  setup["options"] = "a=b";
  EXPECT_NE(setup_refusal(setup).find("\"options\" is a text; a list"), std::string::npos);
}

TEST(Results, ComeThroughTextWithWhatTheyHave) {
  const Result given{.outcome = Outcome::kQualityWarning,
                     .message = "first line\nsecond line",
                     .cause = "tail",
                     .tag = "KERNEL-9",
                     .notes = {"a", "b\nc"},
                     .metrics = {{"margin", 0.5}, {"huge", std::numeric_limits<double>::max()}},
                     .details = {{"kernel", "add.tiled"}}};
  const Result back = result_from_json(through_text(to_json(given)), "END");
  EXPECT_EQ(back.outcome, given.outcome);
  EXPECT_EQ(back.message, given.message) << "a message may have lines";
  EXPECT_EQ(back.cause, given.cause);
  EXPECT_EQ(back.tag, given.tag);
  EXPECT_EQ(back.notes, given.notes);
  EXPECT_EQ(back.metrics, given.metrics);
  EXPECT_EQ(back.details, given.details);
  EXPECT_EQ(to_json(Result{}), (json{{"status", "Pass"}})) << "what is empty is not written";
}

TEST(Results, KeepAMetricThatIsNoNumber) {
  const Result given{.metrics = {{"margin", std::nan("")}, {"rate", HUGE_VAL}}};
  const Result back = result_from_json(through_text(to_json(given)), "END");
  ASSERT_EQ(back.metrics.size(), 2u);
  EXPECT_TRUE(std::isnan(back.metrics.at("margin")));
  EXPECT_TRUE(std::isnan(back.metrics.at("rate"))) << "null tells no infinity";
}

TEST(Results, HaveNoControlCharacters) {
  const Result back = result_from_json(
      json::parse(R"({"status":"Fail","message":"a\u0000b\r\nc","cause":"x\ny","tag":"\u001b[0m",
                      "notes":["\u0007"],"details":{"k\n":"v\n\u0001"},"metrics":{"m\u0002":1}})"),
      "END");
  EXPECT_EQ(back.message.find('\0'), std::string::npos);
  EXPECT_NE(back.message.find("\nc"), std::string::npos) << "lines stay lines";
  EXPECT_EQ(back.cause, "x\\ny") << "a cause is one line";
  EXPECT_EQ(back.tag, "\\x1b[0m");
  EXPECT_EQ(back.notes, std::vector<std::string>{"\\x07"});
  EXPECT_EQ(back.details.at("k\\n"), "v\n\\x01");
  EXPECT_TRUE(back.metrics.contains("m\\x02"));
}

TEST(Results, AreRefusedWithoutAStatusThatIsKnown) {
  EXPECT_TRUE(result_refusal("{}").starts_with("END: there is no \"status\""));
  const std::string long_name(1000, 'x');
  const std::string text = result_refusal(("{\"status\":\"" + long_name + "\"}").c_str());
  EXPECT_NE(text.find("\"" + long_name.substr(0, 40) + "\"; the name of a status"),
            std::string::npos)
      << "only the beginning is repeated: " << text;
  EXPECT_LT(text.size(), 300u);
  EXPECT_NE(result_refusal(R"({"status":"Pass","metrics":[]})"), "");
  EXPECT_NE(result_refusal(R"({"status":"Pass","details":{"a":{}}})"), "");
  EXPECT_NE(result_refusal(R"({"status":"Pass","notes":"a"})"), "");
}

TEST(DispatchCountsTest, AddUpAndStayBelowWhatASumCanHold) {
  DispatchCounts sum{.native = 1,
                     .decomposed = 2,
                     .host = 3,
                     .copied_scalars = 4,
                     .compiled = 1,
                     .realigned = 7,
                     .laid_out = 8};
  sum.add({.native = 10,
           .decomposed = 20,
           .host = 30,
           .copied_scalars = 40,
           .compiled = 5,
           .realigned = 70,
           .laid_out = 80});
  EXPECT_EQ(to_json(sum), (json{{"native", 11},
                                {"decomposed", 22},
                                {"host", 33},
                                {"copied_scalars", 44},
                                {"compiled", 6},
                                {"realigned", 77},
                                {"laid_out", 88}}));
  json counts = to_json(sum);
  EXPECT_EQ(dispatch_counts_from_json(counts, "END").host, 33u);
  counts["host"] = uint64_t{1} << 48;
  EXPECT_EQ(dispatch_counts_from_json(counts, "END").host, uint64_t{1} << 48);
  for (const json& wrong : {json(-1), json((uint64_t{1} << 48) + 1), json(1.5), json("1")}) {
    counts["host"] = wrong;
    EXPECT_THROW(static_cast<void>(dispatch_counts_from_json(counts, "END")), UsageError) << wrong;
  }
}

}  // namespace
}  // namespace bp::conformance

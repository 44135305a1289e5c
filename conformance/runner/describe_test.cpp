// What a worker says of its backend, and what its supervisor takes: descriptions as they are made,
// and as a broken worker or a damaged info.json has them.
#include "conformance/runner/describe.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "conformance/json_file.hpp"
#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

json small_description() {
  return json::parse(R"({
    "suite": "0.1", "host_abi": "0.3", "findings": [], "log": ["one"],
    "plugin": {"name": "acme.npu", "version": "1", "refusals": ""},
    "target": 0,
    "targets": [{"name": "acme.npu:0", "index": 0, "dtypes": ["f32"], "profiles": [],
                 "heaps": [{"size_bytes": 1, "flags": ["device_local"]}],
                 "kernels": [{"op": "add", "name": "add.f32", "flags": [], "layouts": ["any"],
                              "claims_every_dtype": false, "refuses_some": true,
                              "dtype_rows": [["f32"], ["f64"]],
                              "numerics": {"flush": [], "math": "strict"}}]}]})");
}

std::string refusal_of(json description) {
  try {
    check_description(description, "hello");
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

std::string refusal_with(const char* member, const json& value) {
  json damaged = small_description();
  damaged[json::json_pointer(member)] = value;
  return refusal_of(damaged);
}

TEST(Descriptions, AreTakenWholeOrWithTheLeast) {
  EXPECT_EQ(refusal_of(small_description()), "");
  EXPECT_EQ(refusal_of(json::object()), "") << "a worker that did not load has nothing to say";
  json without_version = small_description();
  without_version["plugin"].erase("version");
  without_version["targets"][0]["heaps"][0].erase("max_allocation_bytes");
  EXPECT_EQ(refusal_of(without_version), "");
}

TEST(Descriptions, AreRefusedAtTheMemberThatIsDamaged) {
  const struct {
    const char* member;
    json value;
    const char* words;
  } rows[] = {
      {"/suite", 7, "hello: \"suite\" is the number 7"},
      {"/error", json::array(), "hello: \"error\" is a list of 0"},
      {"/log", {"a", 7}, "hello: \"log\" is a list with the number 7"},
      {"/findings", "one", "hello: \"findings\" is a text"},
      {"/plugin", json::array(), "hello: \"plugin\" is a list of 0; an object is needed"},
      {"/plugin/name", true, "hello: plugin: \"name\" is true"},
      {"/manifests", {{{"name", 7}}}, "hello: manifests[0]: \"name\" is the number 7"},
      {"/manifests", {json::object(), "x"}, "hello: manifests[1]: not a JSON object"},
      {"/targets", 7, "hello: \"targets\" is the number 7"},
      {"/targets/0/name", json(), "hello: targets[0]: \"name\" is null"},
      {"/targets/0/index", -1, "hello: targets[0]: \"index\" is the number -1"},
      {"/targets/0/dtypes", "f32", "hello: targets[0]: \"dtypes\" is a text"},
      {"/targets/0/profiles", {1}, "hello: targets[0]: \"profiles\" is a list with the number 1"},
      {"/targets/0/heaps/0/size_bytes", 1.5, "targets[0]: heaps[0]: \"size_bytes\" is"},
      {"/targets/0/heaps/0/flags", {json()}, "heaps[0]: \"flags\" is a list with null"},
      {"/targets/0/kernels", json::object(), "hello: targets[0]: \"kernels\" is an object"},
      {"/targets/0/kernels/0/op", json(), "targets[0]: kernels[0]: \"op\" is null"},
      {"/targets/0/kernels/0/max_rank", "two", "kernels[0]: \"max_rank\" is a text"},
      {"/targets/0/kernels/0/claims_every_dtype", 1, "\"claims_every_dtype\" is the number 1"},
      {"/targets/0/kernels/0/refuses_some", "no", "\"refuses_some\" is a text"},
      {"/targets/0/kernels/0/dtype_rows", {"f32"}, "dtype_rows: \"row\" is a text"},
      {"/targets/0/kernels/0/dtype_rows", {{"f32"}, {7}}, "\"row\" is a list with the number 7"},
      {"/targets/0/kernels/0/numerics", "strict", "kernels[0]: \"numerics\" is a text"},
      {"/targets/0/kernels/0/numerics/math", 1, "numerics: \"math\" is the number 1"},
      {"/targets/0/kernels/0/numerics/flush", {false}, "numerics: \"flush\" is a list with false"},
      {"/target", 1, "hello: \"target\" is 1; the number of a device of \"targets\" is needed"},
      {"/target", "0", "hello: \"target\" is a text"},
  };
  for (const auto& row : rows) {
    const std::string refusal = refusal_with(row.member, row.value);
    EXPECT_NE(refusal.find(row.words), std::string::npos)
        << row.member << " = " << row.value << ": " << refusal;
  }
}

TEST(Descriptions, AreRefusedWithoutWhatAReportNeeds) {
  const char* const needed[] = {"/target",
                                "/targets/0/dtypes",
                                "/targets/0/profiles",
                                "/targets/0/heaps",
                                "/targets/0/kernels",
                                "/targets/0/heaps/0/size_bytes",
                                "/targets/0/heaps/0/flags",
                                "/targets/0/kernels/0/op",
                                "/targets/0/kernels/0/flags",
                                "/targets/0/kernels/0/layouts",
                                "/targets/0/kernels/0/dtype_rows",
                                "/targets/0/kernels/0/claims_every_dtype",
                                "/targets/0/kernels/0/numerics",
                                "/targets/0/kernels/0/numerics/flush"};
  for (const char* member : needed) {
    json damaged = small_description();
    const json::json_pointer at(member);
    damaged[at.parent_pointer()].erase(at.back());
    EXPECT_NE(refusal_of(damaged).find("there is no \"" + at.back() + "\""), std::string::npos)
        << member << ": " << refusal_of(damaged);
  }
  for (const json& value : {json(), json("text"), json::array()}) {
    EXPECT_NE(refusal_of(value).find("hello: not a JSON object"), std::string::npos) << value;
  }
}

TEST(Descriptions, LoseTheControlCharactersOfABackend) {
  json description = small_description();
  description["error"] = "first\nsecond \x1b[31m";
  description["plugin"]["name"] = "acme\n\x1b]0;npu";
  description["plugin"]["refusals"] = "one\ntwo";
  description["targets"][0]["dtypes"] = {"f32\x07"};
  description["key\x1b"] = "value";
  check_description(description, "hello");
  EXPECT_EQ(description["plugin"]["name"], "acme\\n\\x1b]0;npu");
  EXPECT_EQ(description["targets"][0]["dtypes"][0], "f32\\x07");
  EXPECT_TRUE(description.contains("key\\x1b")) << description.dump();
  const std::string error = description["error"], refusals = description["plugin"]["refusals"];
  EXPECT_EQ(error.find('\x1b'), std::string::npos);
  EXPECT_NE(error.find('\n'), std::string::npos) << "a text of several lines keeps them";
  EXPECT_NE(refusals.find('\n'), std::string::npos);
}

class Manifests : public testing::Test {
 protected:
  Manifests() {
    std::string path = (fs::temp_directory_path() / "bp_describe_XXXXXX").string();
    folder_ = mkdtemp(path.data());
  }
  ~Manifests() override { fs::remove_all(folder_); }

  json described() const {
    const std::string folder = folder_.string();
    const bp_registry_desc desc{.struct_size = sizeof(desc),
                                .struct_type = BP_STRUCT_REGISTRY_DESC,
                                .flags = BP_REGISTRY_IGNORE_ENVIRONMENT,
                                .search_path = folder.c_str()};
    bp_registry* registry = nullptr;
    EXPECT_EQ(bp_registry_create(&desc, &registry), BP_OK) << bp_error_text();
    json list = describe_manifests(registry);
    static_cast<void>(bp_registry_destroy(registry));
    return list;
  }

  fs::path folder_;
};

TEST_F(Manifests, AreListedWithTheirProblems) {
  EXPECT_EQ(described(), json::array());
  std::ofstream(folder_ / "a.json") << "{\"name\": 7";
  std::ofstream(folder_ / "b.json") << "{}";
  const json list = described();
  ASSERT_EQ(list.size(), 2u) << list;
  for (const json& each : list) {
    EXPECT_EQ(each.at("name"), "");
    EXPECT_NE(each.at("problem"), "") << each;
  }
  EXPECT_EQ(list[0].at("file"), (folder_ / "a.json").string());
  json hello = {{"manifests", list}};
  EXPECT_EQ(refusal_of(hello), "");
}

TEST(DescribedTargets, AreWhatASupervisorTakes) {
  bp_registry* registry = nullptr;
  const bp_registry_desc desc{.struct_size = sizeof(desc),
                              .struct_type = BP_STRUCT_REGISTRY_DESC,
                              .flags = BP_REGISTRY_IGNORE_ENVIRONMENT};
  ASSERT_EQ(bp_registry_create(&desc, &registry), BP_OK);
  const bp_plugin* plugin = nullptr;
  ASSERT_EQ(bp_registry_load(registry, BACKPLANE_TEST_PLUGIN, 0, nullptr, &plugin), BP_OK)
      << bp_error_text();
  const bp_target& target = *bp_registry_target(registry, 0);
  json hello = {
      {"plugin", describe_plugin(*plugin)}, {"targets", {describe_target(target)}}, {"target", 0}};
  EXPECT_EQ(refusal_of(hello), "");
  const json& told = hello["targets"][0];
  EXPECT_EQ(hello["plugin"]["name"], plugin->name);
  EXPECT_EQ(hello["plugin"]["kernel_count"], plugin->kernel_count);
  EXPECT_EQ(told["name"], target.name);
  EXPECT_EQ(told["kernels"].size(), bp_target_kernel_count(&target));
  EXPECT_EQ(told["heaps"].size(), target.properties->heap_count);
  for (size_t i = 0; i < told["kernels"].size(); ++i) {
    const bp_kernel& kernel = *bp_target_kernel(&target, i);
    const json& words = told["kernels"][i];
    EXPECT_EQ(words["name"], kernel.name);
    EXPECT_EQ(words["op"], bp_op_name(kernel.op));
    if (kernel.dtype_rows == nullptr) continue;
    ASSERT_EQ(words["dtype_rows"].size(), kernel.dtype_row_count) << kernel.name;
    for (uint32_t row = 0; row < kernel.dtype_row_count; ++row) {
      for (uint32_t column = 0; column < kernel.dtype_count; ++column) {
        EXPECT_EQ(words["dtype_rows"][row][column],
                  bp_dtype_name(kernel.dtype_rows[row * kernel.dtype_count + column]))
            << kernel.name;
      }
    }
  }
  static_cast<void>(bp_registry_destroy(registry));
}

}  // namespace
}  // namespace bp::conformance

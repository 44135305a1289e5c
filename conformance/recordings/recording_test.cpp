// Tests recordings with damage as people and disks cause it: the error for each defect names its
// line.
#include "conformance/recordings/recording.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "conformance/cases/selection.hpp"
#include "conformance/recordings/launch_line.hpp"
#include "conformance/recordings/recording_cases.hpp"
#include "registry/files/sha256.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class Recordings : public testing::Test {
 protected:
  Recordings() {
    std::string path = (fs::temp_directory_path() / "bp_recording_XXXXXX").string();
    folder_ = mkdtemp(path.data());
    fs::create_directory(folder_ / "payloads");
    source_.path = folder_.string();
  }
  ~Recordings() override { fs::remove_all(folder_); }

  static json header() { return {{"format", "backplane.recording"}, {"version", 1}}; }

  // Returns an upload, an addition, and a read of its result.
  std::vector<json> whole() const {
    const auto tensor = [](uint64_t buffer) {
      return json{{"dtype", "f32"},
                  {"shape", {4}},
                  {"strides", {1}},
                  {"buffer", buffer},
                  {"byte_offset", 0}};
    };
    return {{{"call", "stream.default_stream"}, {"device", 0}, {"stream", 1}},
            {{"call", "memory.allocate"},
             {"device", 0},
             {"buffer", 1},
             {"size_bytes", 16},
             {"alignment_bytes", 1},
             {"usage", 0}},
            {{"call", "memory.copy_from_host"},
             {"stream", 1},
             {"dst", {1, 0, 16}},
             {"payload", add_payload(std::string(16, 'a'))}},
            {{"call", "kernel.launch"},
             {"launch", 1},
             {"device", 0},
             {"stream", 1},
             {"flags", 0},
             {"op", "add"},
             {"kernel", "add.f32"},
             {"args", {{"a", tensor(1)}, {"b", tensor(1)}, {"y", tensor(1)}}}},
            {{"call", "memory.copy_to_host"},
             {"stream", 1},
             {"read", 1},
             {"src", {1, 0, 16}},
             {"payload", add_payload(std::string(16, 'b'))}},
            {{"call", "memory.deallocate"}, {"buffer", 1}, {"stream", 1}},
            {{"call", "end"}}};
  }

  std::string add_payload(const std::string& bytes) const {
    const std::string name = sha256(bytes);
    std::ofstream(folder_ / "payloads" / name, std::ios::binary) << bytes;
    return name;
  }

  void write(const std::vector<json>& lines, const json& first = header()) const {
    std::ofstream file(folder_ / "stream.jsonl");
    file << first.dump() << "\n";
    for (const json& line : lines) file << line.dump() << "\n";
  }
  void write_text(const std::string& text) const {
    std::ofstream(folder_ / "stream.jsonl") << text;
  }

  std::string refusal() const {
    try {
      const Recording recording(source_);
    } catch (const UsageError& e) {
      return e.what();
    }
    return "";
  }

  // Changes `member` of line `index`: the recording must then be refused at that line.
  void expect_refused(size_t index, const char* member, const json& value,
                      const std::string& words) const {
    std::vector<json> lines = whole();
    lines[index][json::json_pointer(member)] = value;
    write(lines);
    const std::string text = refusal();
    const std::string place =
        (folder_ / "stream.jsonl").string() + ":" + std::to_string(index + 2) + ": ";
    EXPECT_TRUE(text.starts_with(place)) << member << " = " << value << ": " << text;
    EXPECT_NE(text.find(words), std::string::npos) << member << " = " << value << ": " << text;
  }

  fs::path folder_;
  RecordingSource source_;
};

TEST_F(Recordings, AreReadWithTheirPlaces) {
  write(whole());
  const Recording recording(source_);
  ASSERT_EQ(recording.lines().size(), 7u);
  EXPECT_EQ(recording.place(0), (folder_ / "stream.jsonl").string() + ":2");
  EXPECT_EQ(recording.devices(), std::vector<uint64_t>{0});
  for (size_t i = 0; i < 7; ++i) EXPECT_EQ(recording.is_judged(i), i == 3 || i == 4) << i;
  const std::vector<std::byte> bytes = recording.payload(recording.lines()[2]);
  EXPECT_EQ(bytes, std::vector<std::byte>(16, std::byte{'a'}));
  source_.path = (folder_ / "stream.jsonl").string();
  EXPECT_EQ(refusal(), "") << "the file is as good as its folder";
}

TEST_F(Recordings, AreRefusedWhereTheFileOrItsHeaderIsNone) {
  const std::string file = (folder_ / "stream.jsonl").string();
  EXPECT_TRUE(refusal().starts_with(file + ": cannot be read")) << refusal();
  write_text("");
  EXPECT_EQ(refusal(), file + ": is empty");
  write_text("{\"format\":\n");
  EXPECT_TRUE(refusal().starts_with(file + ":1: the text is not valid JSON")) << refusal();
  for (const json& first : {json::array(), json(7), json{{"format", "other"}, {"version", 1}},
                            json{{"format", 7}, {"version", 1}}, json{{"version", 1}}}) {
    write({}, first);
    EXPECT_NE(refusal().find("is no recording"), std::string::npos) << first;
  }
  for (const json& version : {json(2), json(0), json("1"), json(1.5), json()}) {
    write({}, {{"format", "backplane.recording"}, {"version", version}});
    EXPECT_NE(refusal().find("is of version " + version.dump() + "; this build reads version 1"),
              std::string::npos)
        << refusal();
  }
  fs::remove(folder_ / "stream.jsonl");
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("FIFO"), std::string::npos) << "it would be waited for for ever";
}

TEST_F(Recordings, AreRefusedWhereALineIsDamaged) {
  expect_refused(1, "/call", "memory.polish", "the call 'memory.polish', which is not known");
  expect_refused(1, "/call", 7, "has no call");
  for (const char* member : {"/device", "/buffer", "/size_bytes", "/alignment_bytes", "/usage"}) {
    for (const json& value : {json("1"), json(1.5), json(), json::array()}) {
      expect_refused(1, member, value, std::string("has no number '") + (member + 1) + "'");
    }
  }
  for (const json& value : {json({1, 0}), json({1, 0, 4, 4}), json({1, -1, 4}), json({1, 0, "4"}),
                            json(7), json({1, 0.5, 4})}) {
    expect_refused(2, "/dst", value, "has no range 'dst' of buffer, offset and size");
    expect_refused(4, "/src", value, "has no range 'src'");
  }
  expect_refused(2, "/payload", 7, "has no text 'payload'");
  for (const char* name : {"../../secret", "", "ABCD", "0"}) {
    expect_refused(2, "/payload", name, "is no SHA-256");
  }
  expect_refused(2, "/payload", std::string(64, '0'), "is not there");
  expect_refused(3, "/op", "polish", "launches 'polish', which is no op of this build");
  expect_refused(3, "/op", 7, "has no text 'op'");
  expect_refused(3, "/args", 7, "has no 'args'");
  expect_refused(3, "/args/a/shape", {-4}, "launch 1 (add): 'a' has the extent -4");
  expect_refused(3, "/launch", "one", "has no number 'launch'");
}

TEST_F(Recordings, DescribeOpsThatNoPluginHasDescribed) {
  const auto argument = [](const char* name, uint32_t kind, uint32_t offset, const char* dtype) {
    return json{{"name", name},   {"kind", kind},        {"offset_bytes", offset}, {"since", 1},
                {"may_alias", 0}, {"dtype_rule", dtype}, {"shape_rule", "a.shape"}};
  };
  std::vector<json> lines = whole();
  const json described = {{"call", "op.describe"},
                          {"op", "acme.recorded"},
                          {"description",
                           {{"since", 1},
                            {"revision", 1},
                            {"formula_revision", 1},
                            {"backward_revision", 1},
                            {"frame_size_bytes", 32},
                            {"infers", false},
                            {"decomposition", "y = add(a, b)"},
                            {"arguments",
                             {argument("a", 1, 8, "float"), argument("b", 1, 16, "like(a)"),
                              argument("y", 4, 24, "like(a)")}}}}};
  lines[3]["op"] = "acme.recorded";
  write(lines);
  EXPECT_NE(refusal().find("launches 'acme.recorded', which is no op of this build, and no line"),
            std::string::npos)
      << refusal();
  lines.insert(lines.begin() + 3, described);
  write(lines);
  {
    const Recording recording(source_);
    EXPECT_EQ(read_launch(recording.lines()[4]).tensors.size(), 3u);
    EXPECT_TRUE(recording.is_judged(4));
    EXPECT_FALSE(recording.is_judged(3));
  }
  lines[3]["description"]["decomposition"] = "y = polish(a)";
  write(lines);
  EXPECT_NE(refusal().find(":5: describes acme.recorded in a way that this host rejects: "
                           "decomposition, line 1: there is no op or view 'polish'"),
            std::string::npos)
      << refusal();
  for (const char* member : {"arguments", "since", "infers"}) {
    std::vector<json> damaged = lines;
    damaged[3]["description"].erase(member);
    write(damaged);
    EXPECT_NE(refusal().find(member), std::string::npos) << refusal();
  }
}

TEST_F(Recordings, AreRefusedWhereANumberIsNegative) {
  for (const char* member : {"/device", "/buffer", "/size_bytes"}) {
    expect_refused(1, member, -1, std::string("has no number '") + (member + 1) + "'");
  }
  write({{{"call", "event.signal"}, {"event", 1}, {"signaled", -3}}});
  EXPECT_EQ(refusal(), "") << "a status is negative";
}

// The end of such a range would wrap around and lie before its beginning.
TEST_F(Recordings, AreRefusedWhereARangeEndsBeyond64Bits) {
  source_.seeds_weights = true;
  expect_refused(2, "/dst", {1, UINT64_MAX, 16}, "has no range 'dst'");
  expect_refused(2, "/dst", {1, 16, UINT64_MAX}, "has no range 'dst'");
  expect_refused(4, "/src", {1, UINT64_MAX, UINT64_MAX}, "has no range 'src'");
}

TEST_F(Recordings, AreRefusedWhereAPatternIsNone) {
  const auto expect = [&](const json& pattern, bool is_right) {
    write({{{"call", "memory.fill"}, {"stream", 1}, {"dst", {1, 0, 4}}, {"pattern", pattern}}});
    EXPECT_EQ(refusal().empty(), is_right) << pattern << ": " << refusal();
  };
  expect("00ff", true);
  expect(std::string(32, 'a'), true);
  for (const json& wrong :
       {json(""), json("0"), json("0x"), json("FF"), json(std::string(34, 'a')), json(7)}) {
    expect(wrong, false);
  }
}

TEST_F(Recordings, AreRefusedWhereAPayloadHasOtherBytes) {
  const std::vector<json> lines = whole();
  write(lines);
  const fs::path path = folder_ / "payloads" / lines[4].at("payload").get<std::string>();
  std::ofstream(path, std::ios::binary) << "other bytes";
  EXPECT_NE(refusal().find(":6: the payload " + path.string() +
                           " has other bytes than were recorded: its SHA-256 is "),
            std::string::npos)
      << refusal();
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_NE(refusal().find("is not there"), std::string::npos) << refusal();
}

TEST_F(Recordings, CheckTheOutputsOfALaunch) {
  const std::string right = add_payload("right");
  expect_refused(3, "/outputs", {{"y", {{"payload", "x"}}}}, "is no SHA-256");
  expect_refused(3, "/outputs", {{"y", {{"bytes", 1}}}}, "payload");
  expect_refused(3, "/outputs", {{"y", 7}}, "");
  std::vector<json> lines = whole();
  lines[3]["outputs"] = {{"y", {{"payload", right}}}};
  write(lines);
  EXPECT_EQ(refusal(), "");
}

TEST_F(Recordings, GoOnBehindAnUnrecordedCallOnlyIfAsked) {
  write({{{"call", "unrecorded"}, {"what", "graph.launch"}, {"why", "no slot"}}});
  EXPECT_NE(refusal().find(":2: graph.launch was not recorded: no slot; what follows may differ"),
            std::string::npos)
      << refusal();
  source_.is_partial = true;
  EXPECT_EQ(refusal(), "");
  write({{{"call", "unrecorded"}, {"what", "graph.launch"}, {"why", 7}}});
  EXPECT_NE(refusal().find("has a 'why' of no text"), std::string::npos) << refusal();
}

TEST_F(Recordings, TakeACallThatFailedWithoutItsArguments) {
  write(
      {{{"call", "memory.allocate"}, {"status", -3}}, {{"call", "kernel.launch"}, {"status", 2}}});
  const Recording recording(source_);
  EXPECT_FALSE(recording.is_judged(1));
}

TEST_F(Recordings, SeedOnlyTheFloatsThatALaunchReads) {
  std::vector<json> lines = whole();
  const std::string payload = lines[2].at("payload").get<std::string>();
  // The second upload comes after the launch, so nothing reads it.
  lines.insert(lines.begin() + 4, lines[2]);
  write(lines);
  source_.seeds_weights = true;
  EXPECT_EQ(Recording(source_).seeded_dtype(2), bp_dtype{BP_F32});
  EXPECT_EQ(Recording(source_).seeded_dtype(4), bp_dtype{0});
  for (const char* name : {"a", "b", "y"}) lines[3]["args"][name]["dtype"] = "i32";
  write(lines);
  EXPECT_EQ(Recording(source_).seeded_dtype(2), bp_dtype{0}) << "integers may be indices";
  source_.seeds_weights = false;
  EXPECT_EQ(Recording(source_).seeded_dtype(2), bp_dtype{0});
}

TEST_F(Recordings, NameTheDevicesThatAreUsed) {
  write({{{"call", "stream.default_stream"}, {"device", 3}, {"stream", 9}},
         {{"call", "device.synchronize"}, {"device", 5}},
         {{"call", "stream.default_stream"}, {"device", 2}, {"stream", 8}},
         {{"call", "stream.flush"}, {"stream", 8}},
         {{"call", "event.create"}, {"device", 1}, {"event", 1}, {"flags", 0}}});
  EXPECT_EQ(Recording(source_).devices(), (std::vector<uint64_t>{1, 2}))
      << "a device that is only asked for its default stream, or waited for, does nothing";
}

TEST_F(Recordings, BecomeACaseForEachLaunchAndRead) {
  write(whole());
  const CaseList cases = recording_cases(source_);
  ASSERT_EQ(cases.size(), 3u);
  EXPECT_EQ(cases[0].id, "replay.launch.00001.add");
  EXPECT_EQ(cases[1].id, "replay.read.00001");
  EXPECT_EQ(cases[2].id, "replay.end");
  std::vector<json> lines = whole();
  lines.insert(lines.begin() + 4, lines[3]);
  write(lines);
  EXPECT_THROW(static_cast<void>(recording_cases(source_)), UsageError) << "two launches 1";
  write({{{"call", "end"}}});
  EXPECT_THROW(static_cast<void>(recording_cases(source_)), UsageError) << "nothing to judge";
}

}  // namespace
}  // namespace bp::conformance

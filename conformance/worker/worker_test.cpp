// The worker itself, with a real backend, as its supervisor meets it: this program once more.
#include "conformance/worker/worker.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "conformance/runner/describe.hpp"
#include "conformance/runner/process.hpp"

namespace bp::conformance {
namespace {

using nlohmann::json;

// No worker that does something needs it.
Clock::time_point late() { return Clock::now() + std::chrono::seconds(60); }

class WorkerTest : public testing::Test {
 protected:
  WorkerTest() { setup_.plugin = BACKPLANE_TEST_PLUGIN; }

  // Starts the worker, and gives its HELLO.
  json start() {
    setup_.parent = static_cast<int>(getpid());
    worker_.emplace(setup_, -1);
    return expect(RecordType::kHello);
  }
  json expect(RecordType type) {
    Record record{};
    const Waited waited = worker_->wait(late(), record);
    EXPECT_EQ(static_cast<int>(waited), static_cast<int>(Waited::kRecord)) << worker_->problem();
    EXPECT_EQ(static_cast<int>(record.type), static_cast<int>(type)) << record.payload;
    return record.payload;
  }
  void expect_gone(int exit_code) {
    Record record{};
    EXPECT_EQ(static_cast<int>(worker_->wait(late(), record)), static_cast<int>(Waited::kGone));
    const ProcessEnd end = worker_->finish(late());
    EXPECT_TRUE(WIFEXITED(end.wait_status)) << end.text();
    EXPECT_EQ(WEXITSTATUS(end.wait_status), exit_code) << end.text();
    EXPECT_EQ(end.left_behind, "");
  }

  // Runs one case, and gives END.
  json run(json request) {
    request["seed"] = 7;
    request["attempt"] = 1;
    EXPECT_TRUE(worker_->send(RecordType::kRun, request));
    EXPECT_EQ(expect(RecordType::kBegin).at("case"), request.at("case"));
    for (;;) {
      Record record{};
      if (worker_->wait(late(), record) != Waited::kRecord) {
        ADD_FAILURE() << "there is no END: " << worker_->problem();
        return json::object();
      }
      if (record.type == RecordType::kProgress) {
        EXPECT_EQ(record.payload.at("case"), request.at("case"));
        EXPECT_NE(record.payload.at("phase"), "");
        continue;
      }
      EXPECT_EQ(static_cast<int>(record.type), static_cast<int>(RecordType::kEnd));
      EXPECT_EQ(record.payload.at("case"), request.at("case"));
      EXPECT_GE(record.payload.at("wall_ms").get<double>(), 0);
      return record.payload;
    }
  }
  void part() {
    EXPECT_TRUE(worker_->send(RecordType::kBye, json::object()));
    EXPECT_EQ(expect(RecordType::kBye).at("findings"), json::array());
    expect_gone(0);
  }

  WorkerSetup setup_;
  std::optional<WorkerProcess> worker_;
};

TEST_F(WorkerTest, RunsTheCasesThatItIsToldUntilTheGoodbye) {
  json hello = start();
  EXPECT_FALSE(hello.contains("error")) << hello;
  EXPECT_EQ(hello.at("suite"), kSuiteVersion);
  EXPECT_EQ(hello.at("pid"), worker_->pid());
  EXPECT_NO_THROW(check_description(hello, "hello"));

  const json idle = run({{"case", "stream.new_stream_is_idle"}});
  EXPECT_EQ(idle.at("status"), "Pass") << idle;
  const json added = run({{"case", "op.add.f32.random.17.dense"}});
  EXPECT_EQ(added.at("status"), "Pass") << added;
  for (const char* count :
       {"native", "decomposed", "host", "copied_scalars", "compiled", "realigned", "laid_out"}) {
    EXPECT_GE(added.at("dispatch").at(count), idle.at("dispatch").at(count))
        << count << ": the counts are those of all calls so far";
  }
  part();
}

TEST_F(WorkerTest, GoesOnBehindACaseThatItDoesNotHave) {
  start();
  for (const json& request :
       {json{{"case", "op.add.f32.random.17.dense+1"}, {"change", "{"}},
        json{{"case", "op.add.f32.random.17.dense+2"}, {"change", "{\"case\": 7}"}},
        json{{"case", "x"}, {"change", "{\"case\": \"stream.new_stream_is_idle\"}"}}}) {
    const json end = run(request);
    EXPECT_EQ(end.at("status"), "HarnessError") << request;
    EXPECT_EQ(end.at("message"), "the worker has no case of this id") << request;
  }
  EXPECT_EQ(run({{"case", "stream.new_stream_is_idle"}}).at("status"), "Pass");
  part();
}

TEST_F(WorkerTest, RunsACaseWithTheCallThatItIsGiven) {
  start();
  const char* const kCall = R"({"case": "op.add.f32.random.17.dense", "attributes": {}, "tensors": [
      {"name": "a", "shape": [2, 3], "layout": "dense", "fill": [3, -1, 1]},
      {"name": "b", "shape": [2, 3], "layout": "dense", "fill": [3, -1, 1]},
      {"name": "y", "shape": [2, 3], "layout": "dense"}]})";
  const json changed = run({{"case", "op.add.f32.random.17.dense+1"}, {"change", kCall}});
  EXPECT_EQ(changed.at("status"), "Pass") << changed;
  part();
}

TEST_F(WorkerTest, SaysWhyThereIsNothingToRunOn) {
  setup_.plugin = "/no/such/plugin.so";
  const std::string missing = start().value("error", "");
  EXPECT_TRUE(missing.starts_with(std::string("does not load: ") + bp_status_name(BP_NOT_FOUND)))
      << missing;
  expect_gone(0);

  setup_.plugin = BACKPLANE_TEST_PLUGIN;
  setup_.device = "31";
  EXPECT_EQ(start().value("error", ""), "has no device \"31\"");
  expect_gone(0);

  setup_.device = "";
  setup_.layers = "no_such_layer";
  EXPECT_NE(start().value("error", "").find("no_such_layer"), std::string::npos);
  expect_gone(0);
}

TEST_F(WorkerTest, ListsManifestsWithoutAPlugin) {
  setup_.plugin = "";
  const json hello = start();
  EXPECT_FALSE(hello.contains("error")) << hello;
  EXPECT_TRUE(hello.at("manifests").is_array());
  part();
}

TEST_F(WorkerTest, EndsAtARecordThatIsNotForIt) {
  start();
  EXPECT_TRUE(worker_->send(RecordType::kEnd, json::object()));
  expect_gone(1);
}

TEST_F(WorkerTest, TakesADeviceByItsNumberOrItsName) {
  setup_.device = "0";
  const json by_number = start();
  const std::string name = by_number.at("targets").at(0).at("name");
  part();
  setup_.device = name;
  EXPECT_EQ(start().at("target"), by_number.at("target"));
  part();
}

TEST_F(WorkerTest, SkipsADtypeThatTheDeviceDoesNotList) {
  setup_.layers = "mask";
  setup_.layer_options = "mask.dtypes=f64";
  start();
  const json hidden = run({{"case", "op.add.f64.random.17.dense"}});
  EXPECT_EQ(hidden.at("status"), "NotSupported");
  EXPECT_EQ(hidden.at("message"), "f64 is not among the dtypes of the device");
  EXPECT_EQ(run({{"case", "op.add.f32.random.17.dense"}}).at("status"), "Pass");
  part();
}

TEST_F(WorkerTest, PlaysARecordingThatIsBrokenInTheMiddle) {
  namespace fs = std::filesystem;
  std::string folder = (fs::temp_directory_path() / "bp_worker_XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/stream.jsonl")
      << R"({"format": "backplane.recording", "version": 1})"
      << "\n"
      << R"({"call": "stream.default_stream", "device": 0, "stream": 1})"
      << "\n"
      << R"({"call": "kernel.launch", "launch": 1, "device": 0, "stream": 1, "flags": 0,)"
      << R"( "op": "relu", "kernel": "it", "args": {"x": {"dtype": "f32", "shape": [4],)"
      << R"( "strides": [1], "buffer": 5, "byte_offset": 0}, "y": {"dtype": "f32", "shape": [4],)"
      << R"( "strides": [1], "buffer": 5, "byte_offset": 0}}})"
      << "\n"
      << R"({"call": "end"})"
      << "\n";
  setup_.recording.path = folder;
  start();
  const json broken = run({{"case", "replay.launch.00001.relu"}});
  EXPECT_EQ(broken.at("status"), "Fail");
  EXPECT_NE(broken.at("message").get<std::string>().find("buffer 5 does not exist"),
            std::string::npos)
      << broken;
  EXPECT_EQ(run({{"case", "replay.end"}}).at("status"), "Skip");
  EXPECT_EQ(run({{"case", "stream.new_stream_is_idle"}}).at("status"), "HarnessError")
      << "a recording has cases of its own alone";
  part();
  fs::remove_all(folder);
}

TEST(RunWorker, IsForTheSupervisorAlone) {
  for (const char* setup : {"", "{", "[]", "7", "{}"}) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_worker(setup), 2) << setup;
    EXPECT_EQ(testing::internal::GetCapturedStderr(),
              "bp-conformance: --worker is for the supervisor only\n");
  }
}

}  // namespace
}  // namespace bp::conformance

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--worker") == 0) {
    return bp::conformance::run_worker(argv[2]);
  }
  signal(SIGPIPE, SIG_IGN);  // As bp-conformance does: a worker may be gone.
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

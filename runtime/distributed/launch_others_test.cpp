// Runs several bp-launch processes that stand for as many machines.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <list>
#include <sstream>
#include <thread>

#include "runtime/distributed/test_messages.hpp"
#include "runtime/distributed/test_processes.hpp"

namespace bp::distributed {
namespace {

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

class LaunchOthers : public testing::Test {
 protected:
  struct Launcher {
    pid_t process = 0;
    std::string out, error;  // Files.
  };

  ~LaunchOthers() override {
    for (const Launcher& launcher : launchers) {
      if (launcher.process != 0) kill(launcher.process, SIGKILL);
    }
  }

  // Starts a launcher with the shell script `script`, or with the words of a program.
  Launcher& start(std::vector<std::string> flags, const std::string& script,
                  const std::vector<std::string>& program = {}) {
    Launcher& launcher = launchers.emplace_back();
    launcher.out = folder.file("out" + std::to_string(launchers.size()));
    launcher.error = folder.file("error" + std::to_string(launchers.size()));
    const std::string endpoint = "127.0.0.1:" + std::to_string(port.number());
    std::vector<std::string> words{BACKPLANE_TEST_LAUNCH, "--rdzv-heartbeat", "2"};
    if (std::ranges::find(flags, "--rdzv-endpoint") == flags.end()) {
      words.insert(words.end(), {"--rdzv-endpoint", endpoint});
    }
    words.insert(words.end(), flags.begin(), flags.end());
    if (program.empty()) words.insert(words.end(), {"/bin/sh", "-c", script});
    words.insert(words.end(), program.begin(), program.end());
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    std::fflush(nullptr);  // Else the child writes what waits in the buffers again.
    launcher.process = fork();
    if (launcher.process != 0) return launcher;
    setenv("FOLDER", folder.file("").c_str(), 1);
    static_cast<void>(!freopen(launcher.out.c_str(), "w", stdout));
    static_cast<void>(!freopen(launcher.error.c_str(), "w", stderr));
    execv(pointers[0], pointers.data());
    _exit(99);
  }

  // Returns the exit code, or 128 plus the number of a signal.
  static int end(Launcher& launcher) {
    int status = 0;
    waitpid(std::exchange(launcher.process, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  // Returns whether `one` has rank 0, and so serves the store; else `other` has. Launchers write
  // what their ranks have written a little later.
  static bool has_first_rank(const Launcher& one, const Launcher& other) {
    const auto has = [](const Launcher& launcher) {
      return read_file(launcher.out).find("[0]") != std::string::npos;
    };
    while (!has(one) && !has(other)) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return has(one);
  }

  void wait_for_file(const std::string& name) {
    while (!std::filesystem::exists(folder.file(name))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  ScratchFolder folder;
  const ReservedPort port{"127.0.0.1"};
  std::list<Launcher> launchers;
};

TEST_F(LaunchOthers, LetsTheRanksOfAllMeetInAStore) {
  const std::vector<std::string> flags{"-n", "2", "--nnodes", "2"};
  Launcher& one = start(flags, "", {BACKPLANE_TEST_RANK});
  Launcher& other = start(flags, "", {BACKPLANE_TEST_RANK});
  EXPECT_EQ(end(one), 0) << read_file(one.error);
  EXPECT_EQ(end(other), 0) << read_file(other.error);
  EXPECT_EQ(read_file(one.out) + read_file(other.out), "[0] torchrun: the sum of 4 ranks is 6\n");
}

TEST_F(LaunchOthers, GivesRanksTheirPlaces) {
  const std::string script =
      "echo $RANK of $WORLD_SIZE, $LOCAL_RANK of $LOCAL_WORLD_SIZE, $GROUP_RANK of "
      "$GROUP_WORLD_SIZE, restart $BACKPLANE_RESTART_COUNT at $MASTER_ADDR";
  // The number of ranks may differ, and node ranks say who is first.
  Launcher& second = start({"-n", "1", "--nnodes", "2", "--node-rank", "1"}, script);
  Launcher& first = start({"-n", "2", "--nnodes", "2", "--node-rank", "0"}, script);
  EXPECT_EQ(end(first), 0) << read_file(first.error);
  EXPECT_EQ(end(second), 0) << read_file(second.error);
  EXPECT_EQ(sorted_lines(read_file(first.out)),
            (std::vector<std::string>{"[0] 0 of 3, 0 of 2, 0 of 2, restart 0 at 127.0.0.1",
                                      "[1] 1 of 3, 1 of 2, 0 of 2, restart 0 at 127.0.0.1"}));
  EXPECT_EQ(read_file(second.out), "[2] 2 of 3, 0 of 1, 1 of 2, restart 0 at 127.0.0.1\n");
}

TEST_F(LaunchOthers, EndTogetherWhenARankFails) {
  const std::string script = "if [ $RANK = 2 ]; then exit 7; fi; sleep 1000";
  const std::vector<std::string> flags{"-n", "2", "--nnodes", "2"};
  Launcher& one = start(flags, script);
  Launcher& other = start(flags, script);
  EXPECT_EQ(end(one), 7);
  EXPECT_EQ(end(other), 7);
  for (const Launcher* launcher : {&one, &other}) {
    expect_part(read_file(launcher->error),
                "the job ends: rank 2 ended with exit code 7; the job "
                "was started again 0 times, which is all that");
  }
}

TEST_F(LaunchOthers, StartAllRanksAgainWhenOneWasLost) {
  const std::string script =
      "echo $RANK: $BACKPLANE_RESTART_COUNT of $BACKPLANE_MAX_RESTARTS; "
      "if [ $RANK = 1 ] && [ $BACKPLANE_RESTART_COUNT = 0 ]; then kill -KILL $$; fi; "
      "[ $BACKPLANE_RESTART_COUNT = 1 ] || exec sleep 1000";
  const std::vector<std::string> flags{"-n", "1", "--nnodes", "2", "--max-restarts", "1"};
  Launcher& one = start(flags, script);
  Launcher& other = start(flags, script);
  EXPECT_EQ(end(one), 0) << read_file(one.error);
  EXPECT_EQ(end(other), 0) << read_file(other.error);
  const auto lines = sorted_lines(read_file(one.out) + read_file(other.out));
  EXPECT_EQ(lines, (std::vector<std::string>{"[0] 0: 0 of 1", "[0] 0: 1 of 1", "[1] 1: 0 of 1",
                                             "[1] 1: 1 of 1"}));
  // The one whose rank was lost has no ranks to end.
  expect_part(read_file(one.error) + read_file(other.error),
              "bp-launch: all ranks end: rank 1 was ended by signal 9 (Killed)");
  expect_part(read_file(one.error), "bp-launch: start 2: 2 ranks of 2 launchers");
}

constexpr const char* kUntilAlone =
    "touch $FOLDER/started_${WORLD_SIZE}_$RANK; echo $RANK of $WORLD_SIZE: "
    "$BACKPLANE_RESTART_COUNT; [ $WORLD_SIZE = 2 ] && exec sleep 1000; exit 0";

TEST_F(LaunchOthers, GoOnWithoutALauncherThatWasKilled) {
  const std::vector<std::string> flags{"-n", "2", "--nnodes", "1:2"};
  const std::string script =
      "touch $FOLDER/started_${WORLD_SIZE}_$RANK; echo $RANK of $WORLD_SIZE: "
      "$BACKPLANE_RESTART_COUNT; [ $WORLD_SIZE = 4 ] && exec sleep 1000; exit 0";
  Launcher& one = start(flags, script);
  Launcher& other = start(flags, script);
  for (const char* rank : {"0", "1", "2", "3"}) wait_for_file("started_4_" + std::string(rank));
  // The first one serves the store.
  const bool is_first = has_first_rank(one, other);
  Launcher &first = is_first ? one : other, &second = is_first ? other : one;
  kill(second.process, SIGKILL);
  EXPECT_EQ(end(second), 128 + SIGKILL);
  EXPECT_EQ(end(first), 0) << read_file(first.error);
  const auto lines = sorted_lines(read_file(first.out));
  for (const char* line : {"[0] 0 of 2: 1", "[1] 1 of 2: 1"}) {
    EXPECT_EQ(std::ranges::count(lines, line), 1) << read_file(first.out);
  }
  expect_part(read_file(first.error), "is lost: it has given no sign of life for 2 s");
  expect_part(read_file(first.error), "bp-launch: start 2: 2 ranks of 1 launcher\n");
}

TEST_F(LaunchOthers, StartAgainWithALauncherThatComesLater) {
  const std::vector<std::string> flags{
      "-n", "1", "--nnodes", "1:2", "--max-restarts", "0", "--rdzv-last-call", "0"};
  const std::string script =
      "touch $FOLDER/started_$WORLD_SIZE; echo $RANK of $WORLD_SIZE: $BACKPLANE_RESTART_COUNT; "
      "[ $WORLD_SIZE = 1 ] && exec sleep 1000; exit 0";
  Launcher& one = start(flags, script);
  wait_for_file("started_1");
  Launcher& other = start(flags, script);
  EXPECT_EQ(end(one), 0) << read_file(one.error);
  EXPECT_EQ(end(other), 0) << read_file(other.error);
  EXPECT_EQ(read_file(other.out), "[1] 1 of 2: 1\n");
  expect_part(read_file(one.out), "[0] 0 of 2: 1\n");
  expect_part(read_file(one.error), "all ranks end: launcher 2 on 127.0.0.1 has come");
}

TEST_F(LaunchOthers, EndWhenTheOneThatServesTheStoreIsKilled) {
  const std::vector<std::string> flags{"-n", "1", "--nnodes", "2", "--max-restarts", "3"};
  const auto with_node_rank = [&](const char* rank) {
    std::vector<std::string> words = flags;
    words.insert(words.end(), {"--node-rank", rank});
    return words;
  };
  Launcher& first = start(with_node_rank("0"), kUntilAlone);
  Launcher& second = start(with_node_rank("1"), kUntilAlone);
  wait_for_file("started_2_0");
  wait_for_file("started_2_1");
  kill(first.process, SIGKILL);
  EXPECT_EQ(end(first), 128 + SIGKILL);
  EXPECT_EQ(end(second), 1);
  expect_part(read_file(second.error),
              "the job ends: the launcher that serves the rendezvous at "
              "127.0.0.1:" +
                  std::to_string(port.number()) + " is gone: ");
}

TEST_F(LaunchOthers, GoOnWithoutALauncherThatIsToldToEnd) {
  Launcher& first = start({"-n", "1", "--nnodes", "1:2", "--node-rank", "0"}, kUntilAlone);
  Launcher& second = start({"-n", "1", "--nnodes", "1:2", "--node-rank", "1"}, kUntilAlone);
  wait_for_file("started_2_0");
  wait_for_file("started_2_1");
  kill(second.process, SIGTERM);
  EXPECT_EQ(end(second), 128 + SIGTERM) << read_file(second.error);
  EXPECT_EQ(end(first), 0) << read_file(first.error);
  expect_part(read_file(first.out), "[0] 0 of 1: 1\n");
  expect_part(read_file(first.error), "is lost: it was told to end by Terminated");
}

TEST_F(LaunchOthers, AllEndWhenTheFirstIsToldTo) {
  Launcher& first = start({"-n", "1", "--nnodes", "1:2", "--node-rank", "0"}, kUntilAlone);
  Launcher& second = start({"-n", "1", "--nnodes", "1:2", "--node-rank", "1"}, kUntilAlone);
  wait_for_file("started_2_0");
  wait_for_file("started_2_1");
  kill(first.process, SIGINT);
  EXPECT_EQ(end(first), 128 + SIGINT) << read_file(first.error);
  EXPECT_EQ(end(second), 128 + SIGINT) << read_file(second.error);
  expect_part(read_file(second.error),
              "the launcher that serves the rendezvous was told to end by Interrupt");
}

TEST_F(LaunchOthers, EndWhileTheyWaitForOthers) {
  for (const char* node_rank : {"0", "1"}) {
    Launcher& launcher = start({"-n", "1", "--nnodes", "2", "--node-rank", node_rank}, "exit 0");
    // The signal would end a launcher that has not got as far as to handle it.
    const std::string status = "/proc/" + std::to_string(launcher.process) + "/status";
    while (read_file(status).find("SigBlk:\t0000000000014002") == std::string::npos) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    kill(launcher.process, SIGTERM);
    EXPECT_EQ(end(launcher), 128 + SIGTERM) << read_file(launcher.error);
  }
}

TEST_F(LaunchOthers, TellHowManyHaveCome) {
  Launcher& one = start({"-n", "1", "--nnodes", "2", "--rdzv-timeout", "0.5"}, "exit 0");
  EXPECT_EQ(end(one), 1);
  expect_part(read_file(one.error),
              "the job ends: only 1 launcher came within 0.5 s; --nnodes "
              "asks for at least 2");
  Launcher& other =
      start({"-n", "1", "--nnodes", "2", "--node-rank", "1", "--rdzv-timeout", "0.5"}, "exit 0");
  EXPECT_EQ(end(other), 1);
  expect_part(read_file(other.error),
              "no launcher serves the rendezvous: TcpStore: nobody listens");
}

TEST_F(LaunchOthers, RefuseOptionsThatDiffer) {
  Launcher& first = start({"-n", "1", "--nnodes", "2", "--node-rank", "0"}, "exit 0");
  Launcher& other = start({"-n", "1", "--nnodes", "3", "--node-rank", "1"}, "exit 0");
  EXPECT_EQ(end(other), 1);
  expect_part(read_file(other.error),
              "has --rdzv-id none --nnodes 2:2 --max-restarts 0, and this one --rdzv-id none "
              "--nnodes 3:3 --max-restarts 0; allowed: equal options");
  Launcher& second = start({"-n", "1", "--nnodes", "2", "--node-rank", "1"}, "exit 0");
  EXPECT_EQ(end(second), 0) << "the one that was refused did no harm: " << read_file(second.error);
  EXPECT_EQ(end(first), 0) << read_file(first.error);
}

TEST_F(LaunchOthers, RefuseAWrongCommandLine) {
  const std::pair<std::vector<std::string>, const char*> rows[] = {
      {{"-n", "1"}, "--nnodes: it is needed with --rdzv-endpoint and --node-rank"},
      {{"-n", "1:2", "--nnodes", "2"}, "with --nnodes it is one number"},
      {{"-n", "1", "--nnodes", "2:1"}, "--nnodes: '2:1'; allowed: N or MIN:MAX"},
      {{"-n", "1", "--nnodes", "2", "--rdzv-endpoint", "a:b"}, "'a:b'; allowed: HOST or HOST:PORT"},
  };
  for (const auto& [flags, part] : rows) {
    Launcher& launcher = start(flags, "exit 0");
    EXPECT_EQ(end(launcher), 2);
    expect_part(read_file(launcher.error), part);
  }
}

}  // namespace
}  // namespace bp::distributed

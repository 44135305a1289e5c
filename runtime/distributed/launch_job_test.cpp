// Runs bp-launch on small shell scripts.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "runtime/distributed/test_processes.hpp"

namespace bp::distributed {
namespace {

struct Result {
  int code = 0;
  std::string out, error;
};

std::string read_file(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class LaunchTest : public testing::Test {
 protected:
  // Starts bp-launch with the shell script `script`.
  void start(const std::vector<std::string>& flags, const std::string& script) {
    std::vector<std::string> words{BACKPLANE_TEST_LAUNCH};
    words.insert(words.end(), flags.begin(), flags.end());
    if (!script.empty()) words.insert(words.end(), {"/bin/sh", "-c", script});
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    std::fflush(nullptr);  // Else the child writes what waits in the buffers again.
    process = fork();
    if (process != 0) return;
    setenv("FOLDER", folder.file("").c_str(), 1);
    static_cast<void>(!freopen(folder.file("out").c_str(), "w", stdout));
    static_cast<void>(!freopen(folder.file("error").c_str(), "w", stderr));
    execv(pointers[0], pointers.data());
    _exit(99);
  }

  Result end() {
    int status = 0;
    waitpid(process, &status, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(folder.file("out")),
            read_file(folder.file("error"))};
  }

  Result run(const std::vector<std::string>& flags, const std::string& script) {
    start(flags, script);
    return end();
  }

  // Waits until a rank has made this file.
  void wait_for_file(const std::string& name) {
    while (!std::filesystem::exists(folder.file(name))) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

  ScratchFolder folder;
  pid_t process = 0;
};

std::vector<std::string> sorted_lines(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::ranges::sort(lines);
  return lines;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST_F(LaunchTest, StartsEachRankAndMarksItsLines) {
  const Result result =
      run({"-n", "3"}, "echo $RANK of $WORLD_SIZE local $LOCAL_RANK; printf end; echo bad >&2");
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_EQ(sorted_lines(result.out),
            (std::vector<std::string>{"[0] 0 of 3 local 0", "[0] end", "[1] 1 of 3 local 1",
                                      "[1] end", "[2] 2 of 3 local 2", "[2] end"}));
  EXPECT_EQ(sorted_lines(result.error),
            (std::vector<std::string>{"[0] bad", "[1] bad", "[2] bad"}));
}

TEST_F(LaunchTest, GivesAllRanksOnePort) {
  const Result result = run({"-n", "2"}, "echo $MASTER_ADDR $MASTER_PORT $GROUP_RANK");
  const auto lines = sorted_lines(result.out);
  ASSERT_EQ(lines.size(), 2u) << result.error;
  EXPECT_EQ(lines[0].substr(4), lines[1].substr(4));
  EXPECT_EQ(lines[0].substr(0, 14), "[0] 127.0.0.1 ");
  EXPECT_EQ(run({"-n", "1", "--port", "1234"}, "echo $MASTER_PORT").out, "[0] 1234\n");
}

// Returns whether a socket that shares its port with no other can have this one.
bool is_free(uint16_t port) {
  const Socket socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

// Between the launch and rank 0's store the system may give a port to somebody else.
TEST_F(LaunchTest, ReservesThePortUntilTheRanksEnd) {
  start({"-n", "1"},
        "echo $MASTER_PORT > $FOLDER/port; mv $FOLDER/port $FOLDER/written; "
        "until [ -e $FOLDER/seen ]; do sleep 0.01; done");
  wait_for_file("written");
  const auto port = static_cast<uint16_t>(std::stoi(read_file(folder.file("written"))));
  EXPECT_FALSE(is_free(port));
  std::ofstream(folder.file("seen")).close();
  EXPECT_EQ(end().code, 0);
  EXPECT_TRUE(is_free(port));
}

TEST_F(LaunchTest, PassesArgumentsOn) {
  std::vector<std::string> words{"-n", "1", "/bin/echo", "-n", "2", "--help", "a b"};
  EXPECT_EQ(run(words, "").out, "[0] 2 --help a b\n");
  words.insert(words.begin() + 2, "--");
  EXPECT_EQ(run(words, "").out, "[0] 2 --help a b\n");
}

TEST_F(LaunchTest, StartsRanksThatMeetInAStore) {
  const Result result = run({"-n", "4", BACKPLANE_TEST_RANK}, "");
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_EQ(result.out, "[0] torchrun: the sum of 4 ranks is 6\n");
}

TEST_F(LaunchTest, WritesALogForEachRank) {
  const std::string logs = folder.file("new/logs");
  const Result result = run({"-n", "2", "--log-dir", logs}, "echo out $RANK; echo error >&2");
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_EQ(result.out + result.error, "");
  EXPECT_EQ(read_file(logs + "/rank_0.log"), "out 0\nerror\n");
  EXPECT_EQ(read_file(logs + "/rank_1.log"), "out 1\nerror\n");
}

TEST_F(LaunchTest, EndsTheOthersAndTellsOfTheFirstFailure) {
  const Result result = run({"-n", "3"}, "if [ $RANK = 1 ]; then exit 7; fi; sleep 1000");
  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.error,
            "bp-launch: rank 1 ended with exit code 7\n"
            "bp-launch: the ranks that run get SIGTERM\n");
}

TEST_F(LaunchTest, TellsOfASignal) {
  const Result result = run({"-n", "2", "--log-dir", folder.file("logs")},
                            "if [ $RANK = 0 ]; then kill -SEGV $$; fi; sleep 1000");
  EXPECT_EQ(result.code, 128 + SIGSEGV);
  expect_part(result.error, "rank 0 was ended by signal 11 (Segmentation fault); see " +
                                folder.file("logs/rank_0.log"));
}

TEST_F(LaunchTest, FindsTheRankThatWasKilledAmongOnesThatFailed) {
  // Rank 0 kills rank 1 and fails. Either end may show first.
  const Result result =
      run({"-n", "3"},
          "if [ $RANK = 1 ]; then echo $$ >$FOLDER/number; mv $FOLDER/number $FOLDER/pid; fi; "
          "if [ $RANK = 0 ]; then while ! [ -e $FOLDER/pid ]; do sleep 0.005; done; "
          "kill -KILL $(cat $FOLDER/pid); exit 4; fi; exec sleep 1000");
  EXPECT_EQ(result.code, 128 + SIGKILL);
  expect_part(result.error, "bp-launch: rank 1 was ended by signal 9 (Killed)\n");
}

TEST_F(LaunchTest, KillsRanksThatIgnoreTheSignal) {
  const Result result = run({"-n", "2", "--grace", "0.2"},
                            "if [ $RANK = 1 ]; then while ! [ -e $FOLDER/ready ]; do sleep 0.01; "
                            "done; exit 3; fi; trap '' TERM; touch $FOLDER/ready; while true; do "
                            "sleep 0.05; done");
  EXPECT_EQ(result.code, 3);
  expect_part(result.error, "ranks still run after the grace period; they get SIGKILL");
}

TEST_F(LaunchTest, ForwardsSignals) {
  for (const int number : {SIGINT, SIGTERM}) {
    const std::string name = number == SIGINT ? "INT" : "TERM";
    setenv("NAME", name.c_str(), 1);
    start({"-n", "2"},
          "trap \"echo got $NAME; exit 0\" $NAME; touch $FOLDER/$NAME$RANK; "
          "while true; do sleep 0.01; done");
    wait_for_file(name + "0");
    wait_for_file(name + "1");
    kill(process, number);
    const Result result = end();
    EXPECT_EQ(result.code, 0) << result.error;
    EXPECT_EQ(sorted_lines(result.out),
              (std::vector<std::string>{"[0] got " + name, "[1] got " + name}));
    expect_part(result.error, "the ranks that run get SIG" + name);
  }
}

// ---- Restarts ----------------------------------------------------------------------------------

TEST_F(LaunchTest, StartsAllRanksAgainWhenOneWasLost) {
  const Result result =
      run({"-n", "3", "--max-restarts", "2"},
          "echo $RANK of $WORLD_SIZE: $BACKPLANE_RESTART_COUNT of $BACKPLANE_MAX_RESTARTS; "
          "if [ $RANK = 1 ] && [ $BACKPLANE_RESTART_COUNT = 0 ]; then kill -KILL $$; fi; "
          "[ $BACKPLANE_RESTART_COUNT = 1 ] || sleep 1000");
  EXPECT_EQ(result.code, 0) << result.error;
  const std::vector<std::string> lines = sorted_lines(result.out);
  for (const char* line : {"[0] 0 of 3: 1 of 2", "[1] 1 of 3: 0 of 2", "[2] 2 of 3: 1 of 2"}) {
    EXPECT_EQ(std::ranges::count(lines, line), 1) << result.out;
  }
  expect_part(result.error, "rank 1 was ended by signal 9 (Killed)");
  expect_part(result.error, "bp-launch: restart 1 of 2: starts 3 ranks again\n");
}

TEST_F(LaunchTest, HasTheExitCodeOfTheLastRestart) {
  const Result result = run({"-n", "2", "--max-restarts", "2"},
                            "[ $RANK = 0 ] && exit $((5 + BACKPLANE_RESTART_COUNT)); sleep 1000");
  EXPECT_EQ(result.code, 7);
  EXPECT_EQ(result.error,
            "bp-launch: rank 0 ended with exit code 5\n"
            "bp-launch: the ranks that run get SIGTERM\n"
            "bp-launch: restart 1 of 2: starts 2 ranks again\n"
            "bp-launch: rank 0 ended with exit code 6\n"
            "bp-launch: the ranks that run get SIGTERM\n"
            "bp-launch: restart 2 of 2: starts 2 ranks again\n"
            "bp-launch: rank 0 ended with exit code 7\n"
            "bp-launch: the ranks that run get SIGTERM\n"
            "bp-launch: the job ends: it was started again 2 times, which is all that "
            "--max-restarts allows\n");
}

TEST_F(LaunchTest, GoesOnWithoutTheRanksThatWereLost) {
  // Slot 1 is lost, then slot 2, then slot 0. At least two ranks are wanted, so slot 1, which was
  // lost first, gets another try.
  const Result result =
      run({"-n", "2:4", "--max-restarts", "3"},
          "echo $BACKPLANE_RESTART_COUNT: slot $BACKPLANE_SLOT is $RANK of $WORLD_SIZE; "
          "for lost in 0-1 1-2 2-0; do "
          "[ $BACKPLANE_RESTART_COUNT-$BACKPLANE_SLOT = $lost ] && kill -KILL $$; done; "
          "[ $BACKPLANE_RESTART_COUNT = 3 ] || sleep 1000");
  EXPECT_EQ(result.code, 0) << result.error;
  const std::vector<std::string> lines = sorted_lines(result.out);
  for (const char* line :
       {"[1] 0: slot 1 is 1 of 4", "[1] 1: slot 2 is 1 of 3", "[0] 2: slot 0 is 0 of 2",
        "[0] 3: slot 1 is 0 of 2", "[1] 3: slot 3 is 1 of 2"}) {
    EXPECT_EQ(std::ranges::count(lines, line), 1) << line << " in:\n" << result.out;
  }
  expect_part(result.error, "restart 1 of 3: starts 3 ranks, where there were 4\n");
  expect_part(result.error, "restart 2 of 3: starts 2 ranks, where there were 3\n");
  expect_part(result.error, "restart 3 of 3: starts 2 ranks again\n");
}

TEST_F(LaunchTest, RestartsAsOftenAsRanksMayBeLost) {
  const Result result = run({"-n", "1:3"}, "[ $WORLD_SIZE = 1 ] || exit 4");
  EXPECT_EQ(result.code, 0) << result.error;
  expect_part(result.error, "restart 2 of 2: starts 1 rank, where there were 2\n");
}

TEST_F(LaunchTest, LetsTheRanksOfARestartMeetInAStore) {
  const Result result =
      run({"-n", "2:3"},
          "if [ $BACKPLANE_RESTART_COUNT = 0 ] && [ $RANK = 2 ]; then exit 1; fi; "
          "exec " BACKPLANE_TEST_RANK);
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_EQ(result.out, "[0] torchrun: the sum of 2 ranks is 1\n");
}

TEST_F(LaunchTest, WritesALogForEachRestart) {
  const std::string logs = folder.file("logs");
  const Result result = run({"-n", "1", "--max-restarts", "1", "--log-dir", logs},
                            "echo $BACKPLANE_RESTART_COUNT; exit $((1 - BACKPLANE_RESTART_COUNT))");
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_EQ(read_file(logs + "/rank_0.log"), "0\n");
  EXPECT_EQ(read_file(logs + "/rank_0.restart_1.log"), "1\n");
}

TEST_F(LaunchTest, StartsNothingAgainThatWasToldToEnd) {
  start({"-n", "2", "--max-restarts", "5"}, "touch $FOLDER/ready$RANK; sleep 1000");
  wait_for_file("ready0");
  wait_for_file("ready1");
  kill(process, SIGTERM);
  const Result result = end();
  EXPECT_EQ(result.code, 128 + SIGTERM);
  EXPECT_EQ(result.error.find("restart"), std::string::npos) << result.error;
}

// ------------------------------------------------------------------------------------------------

TEST_F(LaunchTest, RefusesAWrongCommandLine) {
  Result result = run({}, "exit 0");
  EXPECT_EQ(result.code, 2);
  expect_part(result.error, "--ranks is required");
  for (const char* ranks : {"0", "4097", "3:2", "0:2", "2:", ":2", "two", "2:3:4", "-1"}) {
    result = run({"-n", ranks}, "exit 0");
    EXPECT_EQ(result.code, 2);
    expect_part(result.error,
                "'" + std::string(ranks) + "'; allowed: N or MIN:MAX, from 1 to 4096");
  }
  EXPECT_EQ(run({"-n", "2"}, "").code, 2);
  result = run({"-n", "2", "--no-such-flag"}, "exit 0");
  EXPECT_EQ(result.code, 2);
  expect_part(result.error, "--no-such-flag");
  result = run({"--help"}, "");
  EXPECT_EQ(result.code, 0);
  expect_part(result.out, "Exit codes:");
}

TEST_F(LaunchTest, TellsThatThereIsNoProgram) {
  const Result result = run({"-n", "1", "--max-restarts", "3", "/no/such/program"}, "");
  EXPECT_EQ(result.code, 127);
  expect_part(result.error, "cannot run /no/such/program: No such file or directory");
  EXPECT_EQ(result.error.find("restart"), std::string::npos) << "it would not help";
}

}  // namespace
}  // namespace bp::distributed

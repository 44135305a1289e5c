// Runs tests in processes that mpirun starts. Each test starts mpirun, which runs this program with
// this test alone. In those processes the test runs its body. So the body is at one place with the
// test, and its failures are those of the processes.
//
//   TEST(Mpi, SumsUp) {
//     in_processes(2, [](Ranks& r, uint32_t rank) { ... });
//   }
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/cpu/groups/groups_test.hpp"
#include "backends/cpu/groups/test_store.hpp"

namespace bp::mpi {

using cpu::kLong;
using cpu::kShort;
using cpu::Ranks;
using Floats = std::vector<float>;

// What a process does with its rank. It throws if something is wrong.
using Body = std::function<void(Ranks& ranks, uint32_t rank)>;

// The variable with the folder of the store, which only the processes of ranks have.
constexpr const char* kFolder = "BACKPLANE_MPI_TEST_FOLDER";

inline void expect(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

template <typename T>
void expect_equal(const T& got, const T& want, const std::string& what) {
  if (got == want) return;
  throw std::runtime_error(what + " is " + testing::PrintToString(got) + ", expected " +
                           testing::PrintToString(want));
}

inline void run_calls(Ranks& r, const std::vector<bp_collective_call>& calls, size_t stream,
                      const std::string& what) {
  expect(r.submit(calls) == BP_OK, what + ": submit: " + r.text());
  expect(r.outcome(stream) == BP_OK, what + ": " + r.text());
}

// Returns the rank of this process, or nothing in the process of the test itself.
inline std::optional<uint32_t> rank_here() {
  if (std::getenv(kFolder) == nullptr) return std::nullopt;
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) return static_cast<uint32_t>(std::stoul(rank));
  }
  throw std::runtime_error("the launcher has set no variable with the rank");
}

// How mpirun ended.
struct Job {
  int status = -1;
  std::string output;
};

// Runs `size` processes of the test that runs now.
inline Job run_mpirun(uint32_t size, const std::string& folder) {
  const auto& info = *testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter =
      std::string("--gtest_filter=") + info.test_suite_name() + "." + info.name();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  const std::string count = std::to_string(size);
  const std::array<const char*, 6> words = {MPIRUN,          "-n",           count.c_str(),
                                            program.c_str(), filter.c_str(), nullptr};
  // Open MPI refuses to run as root, and more processes than there are processors, by default. It
  // binds the threads of a rank to one processor.
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe"}) {
    setenv(name, "1", 1);
  }
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 1);
  // Open MPI keeps its sessions in one folder of a user below TMPDIR. One mpirun removes that
  // folder while another makes it, which then fails, so each has a TMPDIR of its own.
  const char* const given = std::getenv("TMPDIR");
  const std::string temporary = given == nullptr ? "" : given;
  setenv("TMPDIR", folder.c_str(), 1);
  setenv(kFolder, folder.c_str(), 1);
  const std::string output = folder + "/output";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_adddup2(&actions, 1, 2);
  pid_t child = 0;
  const int error = posix_spawn(&child, MPIRUN, &actions, nullptr,
                                const_cast<char* const*>(words.data()), environ);
  posix_spawn_file_actions_destroy(&actions);
  unsetenv(kFolder);
  unsetenv("TMPDIR");
  if (!temporary.empty()) setenv("TMPDIR", temporary.c_str(), 1);
  if (error != 0) throw std::runtime_error("mpirun does not start");
  Job job;
  waitpid(child, &job.status, 0);
  std::ifstream file(output);
  job.output.assign(std::istreambuf_iterator<char>(file), {});
  return job;
}

// Runs the body as one rank of `size`.
inline void run_rank(uint32_t rank, uint32_t size, const Body& body) {
  const cpu::FileStore store(std::getenv(kFolder));
  Ranks ranks("mpi");
  try {
    if (size != 0) {
      expect(ranks.create({rank}, size, store.table()) == BP_OK, "create: " + ranks.text());
      ranks.set(0, {static_cast<float>(rank + 1), 2, 3, static_cast<float>(10 * rank)});
    }
    body(ranks, rank);
  } catch (const std::exception& e) {
    ADD_FAILURE() << "rank " << rank << ": " << e.what();
  }
}

// Runs the body in `processes` processes and returns how mpirun ended. Each has one rank of a group
// of `size`; if that is 0 there is no group yet.
inline Job job_of(uint32_t processes, uint32_t size, const Body& body) {
  if (const auto rank = rank_here()) {
    run_rank(*rank, size, body);
    return {0, ""};
  }
  std::string folder = testing::TempDir() + "/mpi.XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  Job job = run_mpirun(processes, folder);
  std::filesystem::remove_all(folder);
  return job;
}

inline bool has_mpirun() { return access(MPIRUN, X_OK) == 0; }

#define BP_SKIP_WITHOUT_MPIRUN() \
  if (!has_mpirun()) GTEST_SKIP() << "mpirun was not found; install openmpi-bin"

inline void in_processes(uint32_t size, const Body& body) {
  BP_SKIP_WITHOUT_MPIRUN();
  const Job job = job_of(size, size, body);
  EXPECT_EQ(job.status, 0) << job.output;
}

// The same, without a group.
inline void in_processes_alone(uint32_t size, const Body& body) {
  BP_SKIP_WITHOUT_MPIRUN();
  const Job job = job_of(size, 0, body);
  EXPECT_EQ(job.status, 0) << job.output;
}

// The store of a rank, for groups that a body makes.
inline const bp_store* store_here() {
  static const cpu::FileStore store(std::getenv(kFolder));
  return store.table();
}

// Memory of a rank for elements of any type.
template <typename T>
class Memory {
 public:
  Memory(Ranks& r, uint64_t count) : count_(count), size_bytes_(count * sizeof(T)) {
    buffer_ = r.backend().make_buffer(std::max<uint64_t>(size_bytes_, 1));
    uint64_t address = 0;
    r.backend().allocator->address(r.backend().allocator->self, buffer_, &address);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the ABI has addresses as numbers.
    values_ = reinterpret_cast<T*>(address);
    std::fill_n(values_, count_, T{});
  }

  T& operator[](uint64_t i) const { return values_[i]; }
  uint64_t count() const { return count_; }
  bp_buffer_ref all() const { return part(0, count_); }
  bp_buffer_ref part(uint64_t at, uint64_t count) const {
    return {buffer_, at * sizeof(T), count * sizeof(T)};
  }
  std::vector<T> values() const { return {values_, values_ + count_}; }

 private:
  const uint64_t count_, size_bytes_;
  bp_buffer* buffer_ = nullptr;
  T* values_ = nullptr;
};

}  // namespace bp::mpi

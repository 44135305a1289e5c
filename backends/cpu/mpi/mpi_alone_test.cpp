// The table `mpi` in a process that no launcher of MPI has started.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>
#include <thread>

#include "backends/cpu/groups/groups_test.hpp"
#include "backends/cpu/groups/test_store.hpp"

namespace bp::mpi {
namespace {

using cpu::kLong;
using cpu::Ranks;
using Floats = std::vector<float>;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A folder that ends with the test.
class Folder {
 public:
  Folder() {
    std::string name = testing::TempDir() + "/mpi_alone.XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(MpiAlone, RunsAGroupOfOneRankWithoutMpi) {
  Ranks r("mpi");
  ASSERT_EQ(r.create({0}, 1, nullptr), BP_OK) << r.text();
  r.set(0, {1, 2, 3, 4});
  bp_collective_call scaled = r.call(0, BP_COLLECTIVE_ALL_REDUCE, BP_REDUCTION_SCALED_SUM);
  scaled.scale = 2;
  ASSERT_EQ(r.submit({scaled}), BP_OK) << r.text();
  EXPECT_EQ(r.outcome(0), BP_OK) << r.text();
  EXPECT_EQ(r.get(0, 4), (Floats{2, 4, 6, 8}));
  ASSERT_EQ(r.submit({r.letter(0, BP_COLLECTIVE_SEND, 0), r.letter(0, BP_COLLECTIVE_RECEIVE, 0)}),
            BP_OK)
      << r.text();
  EXPECT_EQ(r.outcome(0), BP_OK) << r.text();
  EXPECT_EQ(r.values(0)[35], 8);
}

TEST(MpiAlone, EndsALetterOfARankToItselfThatNobodyReceives) {
  Ranks r("mpi");
  ASSERT_EQ(r.create({0}, 1, nullptr), BP_OK) << r.text();
  bp_collective_call letter = r.letter(0, BP_COLLECTIVE_SEND, 0);
  letter.timeout_ns = cpu::kShort / 10;
  ASSERT_EQ(r.submit({letter}), BP_OK) << r.text();
  EXPECT_EQ(r.outcome(0), BP_TIMEOUT) << r.text();
  EXPECT_TRUE(contains(r.text(), "send: rank 0 waited 100 ms for rank 0")) << r.text();
}

TEST(MpiAlone, RefusesRanksThatShareAProcess) {
  Ranks r("mpi");
  EXPECT_EQ(r.create({0, 1}, 2, nullptr), BP_UNSUPPORTED);
  EXPECT_TRUE(contains(r.text(), "one rank in each process, so choose another table")) << r.text();
}

TEST(MpiAlone, NeedsAStoreForSeveralRanks) {
  Ranks r("mpi");
  EXPECT_EQ(r.create({0}, 2, nullptr), BP_INVALID_ARGUMENT);
  EXPECT_TRUE(contains(r.text(), "store is NULL")) << r.text();
}

TEST(MpiAlone, RefusesWrongOptions) {
  Ranks r("mpi");
  EXPECT_EQ(r.create({0}, 1, nullptr, kLong, {{"interface", "lo"}}), BP_NOT_FOUND);
  EXPECT_TRUE(contains(r.text(), "have no option \"interface\"; allowed are: shared_memory"))
      << r.text();
  EXPECT_EQ(r.create({0}, 1, nullptr, kLong, {{"shared_memory", "no"}}), BP_INVALID_ARGUMENT);
  EXPECT_EQ(r.text(), "create: option shared_memory is \"no\"; it must be 0 or 1");
}

TEST(MpiAlone, SaysHowToStartSeveralRanks) {
  const Folder folder;
  const cpu::FileStore store(folder.path());
  Ranks a("mpi"), b("mpi");
  bp_status other = BP_OK;
  std::thread thread([&] { other = b.create({1}, 2, store.table()); });
  EXPECT_EQ(a.create({0}, 2, store.table()), BP_UNSUPPORTED);
  thread.join();
  EXPECT_EQ(other, BP_UNSUPPORTED);
  for (const Ranks* r : {&a, &b}) {
    EXPECT_TRUE(contains(r->text(), "start the program with mpirun -n 2")) << r->text();
  }
}

// The plugin lies in a folder of its own, without the module.
TEST(MpiAlone, SaysWhatToInstallWhereTheModuleIsMissing) {
  const Folder folder;
  const cpu::FileStore store(folder.path());
  const std::filesystem::path plugin = folder.path() / "plugin.so";
  std::filesystem::copy_file(BACKEND_PATH, plugin);
  Ranks r("mpi", plugin.c_str());
  EXPECT_EQ(r.create({0}, 2, store.table()), BP_UNSUPPORTED);
  EXPECT_TRUE(contains(r.text(), "need the module libbackplane_cpu_mpi.so and Open MPI"))
      << r.text();
  EXPECT_EQ(r.create({0}, 1, nullptr), BP_OK) << r.text();
}

}  // namespace
}  // namespace bp::mpi

// Saves checkpoints for checkpoint_damage_test: FOLDER STEP RANKS WHEN. The ranks are threads. The
// process kills itself when it has taken the step WHEN of the save, such as "written". With the
// word "limit" files have at most 4 KiB, as on a full disk, and the program prints what each rank
// says.
#include <signal.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/distributed/checkpoint_save.hpp"
#include "runtime/distributed/test_ranks.hpp"

namespace {

namespace bd = bp::distributed;

constexpr const char* kSteps[] = {"planned", "written", "agreed", "indexed", "cleaned"};
constexpr int64_t kColumns = 4096;

// Each rank has a row of "w", and all of them have "b".
std::vector<bd::Piece> pieces_of(const bd::ProcessGroup& world, double value) {
  const bp::Tensor row = bp::full({1, kColumns}, value, BP_F32);
  return {{"w", {world.size(), kColumns}, {world.rank(), 0}, row},
          {"b", {3}, {0}, bp::full({3}, value, BP_F32)}};
}

int save(const std::string& folder, int64_t step, uint32_t ranks, const std::string& when) {
  bd::make_folder(folder);
  bd::run_ranks(ranks, [&](bd::ProcessGroup& world) {
    const auto after_step = [&](bd::SaveStep done) {
      if (kSteps[static_cast<int>(done)] == when) raise(SIGKILL);
    };
    bd::CheckpointSave save(world,
                            {.folder = folder, .step = step, .keep = 1, .after_step = after_step},
                            pieces_of(world, static_cast<double>(step)));
    save.run();
  });
  return 0;
}

int save_with_limit(const std::string& folder, int64_t step, uint32_t ranks) {
  const rlimit limit{4096, 4096};
  setrlimit(RLIMIT_FSIZE, &limit);
  signal(SIGXFSZ, SIG_IGN);
  const std::vector<bp::Device>& devices = bd::test_devices();
  std::vector<bd::ProcessGroup> groups = bd::ProcessGroup::make_local({devices.data(), ranks});
  for (const std::string& text : bd::messages_of_ranks(ranks, [&](uint32_t rank) {
         const bp::DeviceGuard guard(devices[rank]);
         bd::CheckpointFolder checkpoints(folder, groups[rank], {.keep = 1});
         checkpoints.save(step, pieces_of(groups[rank], static_cast<double>(step)));
       })) {
    std::puts(text.c_str());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  const std::string folder = argv[1], when = argv[4];
  const int64_t step = std::atoll(argv[2]);
  const auto ranks = static_cast<uint32_t>(std::atoi(argv[3]));
  try {
    return when == "limit" ? save_with_limit(folder, step, ranks) : save(folder, step, ranks, when);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}

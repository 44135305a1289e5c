// One rank of a job that a test starts with bp-launch: it joins the store, and adds its rank to a
// number. Rank 0 prints the sum.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "backplane/runtime/distributed/launch.hpp"
#include "backplane/runtime/distributed/store.hpp"

int main() {
  try {
    namespace bd = bp::distributed;
    const bd::Launch launch = bd::read_launch(std::getenv);
    bd::TcpStore store(launch.master_host, launch.master_port, launch.rank == 0, launch.world_size);
    store.add("sum", launch.rank);
    store.barrier("added", launch.rank, launch.world_size);
    if (launch.rank != 0) return 0;
    std::printf("%s: the sum of %u ranks is %s\n", launch.launcher.c_str(), launch.world_size,
                store.get("sum").c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}

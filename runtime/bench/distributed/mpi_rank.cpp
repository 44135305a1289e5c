// One rank of MPI alone, without Backplane, as distributed_rank measures: a line for each size.
//
// usage: mpirun -n RANKS mpi_rank BYTES...
#define OMPI_SKIP_MPICXX 1  // The C++ binding of MPI 2 is not used.
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kGroupSeconds = 0.05;  // As in rank.cpp.
constexpr int kGroups = 7;
constexpr int kWarmUpCalls = 1000;
constexpr size_t kWarmUpElements = 1 << 18;

double seconds_of(std::vector<float>& data, int calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) {
    MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(data.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
  }
  return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

int agreed(double once) {
  int calls = static_cast<int>(std::clamp(kGroupSeconds / once, 2.0, 2000.0));
  MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
  return calls;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: mpirun -n RANKS mpi_rank BYTES...\n");
    return 2;
  }
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  std::vector<float> warm(kWarmUpElements);
  static_cast<void>(seconds_of(warm, kWarmUpCalls));
  for (int i = 1; i < argc; ++i) {
    const long long bytes = std::atoll(argv[i]);
    std::vector<float> data(static_cast<size_t>(std::max(1LL, bytes / 4)));
    const int calls = agreed(seconds_of(data, 3));
    std::vector<double> samples(kGroups);
    for (double& sample : samples) sample = seconds_of(data, calls);
    std::ranges::sort(samples);
    if (rank == 0) std::printf("%lld %.9g\n", bytes, samples[samples.size() / 2]);
  }
  MPI_Finalize();
  return 0;
}

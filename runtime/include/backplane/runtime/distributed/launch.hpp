// What a launcher tells a process by variables of the environment: which rank of how many it is,
// and where the ranks meet.
//
//   const auto launch = bp::distributed::read_launch(std::getenv);
//   bp::distributed::TcpStore store(launch.master_host, launch.master_port, launch.rank == 0,
//                                   launch.world_size);
//
// The runtime itself reads no such variables: the program gives it the function that does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace bp::distributed {

struct Launch {
  uint32_t rank = 0;
  uint32_t world_size = 1;
  uint32_t local_rank = 0;  // Among the ranks of this machine.
  uint32_t slot = 0;  // Which device of this machine to take: the local rank, or a fixed place.
  uint32_t restart_count = 0;             // How often the launcher has started the job again.
  std::string master_host = "127.0.0.1";  // Where rank 0 is reached.
  uint16_t master_port = 29500;
  std::string launcher;  // "torchrun", "Open MPI", "PMI", "Slurm", or "" without a launcher.
};

// Returns the value of a variable, or NULL.
using GetVariable = std::function<const char*(const char* name)>;

// Reads the variables of the first launcher in this list whose rank is set:
//
//               rank                  world size            local rank
//   torchrun    RANK                  WORLD_SIZE            LOCAL_RANK
//   Open MPI    OMPI_COMM_WORLD_RANK  OMPI_COMM_WORLD_SIZE  OMPI_COMM_WORLD_LOCAL_RANK
//   PMI         PMI_RANK              PMI_SIZE              MPI_LOCALRANKID
//   Slurm       SLURM_PROCID          SLURM_NTASKS          SLURM_LOCALID
//
// bp-launch sets those of torchrun. MASTER_ADDR and MASTER_PORT always count. Without MASTER_ADDR,
// Slurm's list of nodes names the host, or SLURM_LAUNCH_NODE_IPADDR; ranks that are all on one
// machine take its loopback address. Without MASTER_PORT the port is 29500, or comes from
// SLURM_JOB_ID. If TORCHELASTIC_USE_AGENT_STORE is True, torchrun has a store of its own at
// MASTER_PORT, and the port is the next one. Without a launcher the process is the only rank.
//
// bp-launch also sets BACKPLANE_SLOT, the place that a rank keeps when the job goes on without
// others, and BACKPLANE_RESTART_COUNT. Without the latter, torchrun's TORCHELASTIC_RESTART_COUNT
// counts.
//
// Throws Error, which names the variables, if one is missing or no number, if a rank does not fit
// its world size, or if launchers contradict each other: if torchrun's variables differ from those
// of MPI, unless GROUP_RANK says that MPI started a launcher for each machine. Slurm's variables
// contradict nobody, since a job's script and mpirun pass on those of another process.
Launch read_launch(const GetVariable& get_variable);

}  // namespace bp::distributed

#include "backplane/runtime/distributed/launch.hpp"

#include <gtest/gtest.h>

#include <map>

#include "backplane/runtime/error.hpp"

namespace bp::distributed {
namespace {

using Environment = std::map<std::string, std::string>;

Launch read(const Environment& environment) {
  return read_launch([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

void expect_refused(const Environment& environment, const std::string& part) {
  try {
    read(environment);
    ADD_FAILURE() << "nothing was thrown; expected: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), BP_INVALID_ARGUMENT);
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

const Environment kTorchrun = {{"RANK", "5"},           {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},     {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "head"}, {"MASTER_PORT", "1234"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Environment kSlurm = {{"SLURM_PROCID", "2"},
                            {"SLURM_NTASKS", "4"},
                            {"SLURM_LOCALID", "0"},
                            {"SLURM_JOB_ID", "123456"},
                            {"SLURM_STEP_NODELIST", "node[003-010,12]-ib,other"},
                            {"SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"}};

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

TEST(ReadLaunch, IsOneRankWithoutALauncher) {
  const Launch launch = read({});
  EXPECT_EQ(launch.rank, 0u);
  EXPECT_EQ(launch.world_size, 1u);
  EXPECT_EQ(launch.launcher, "");
}

TEST(ReadLaunch, ReadsTorchrun) {
  const Launch launch = read(kTorchrun);
  EXPECT_EQ(launch.rank, 5u);
  EXPECT_EQ(launch.world_size, 8u);
  EXPECT_EQ(launch.local_rank, 1u);
  EXPECT_EQ(launch.master_host, "head");
  EXPECT_EQ(launch.master_port, 1234);
  EXPECT_EQ(launch.launcher, "torchrun");
}

TEST(ReadLaunch, ReadsRestarts) {
  EXPECT_EQ(read(kTorchrun).restart_count, 0u);
  EXPECT_EQ(read(kTorchrun).slot, 1u) << "the local rank";
  const Environment torchrun = with(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "2"}});
  EXPECT_EQ(read(torchrun).restart_count, 2u);
  const Launch launch =
      read(with(torchrun, {{"BACKPLANE_RESTART_COUNT", "3"}, {"BACKPLANE_SLOT", "7"}}));
  EXPECT_EQ(launch.restart_count, 3u);
  EXPECT_EQ(launch.slot, 7u);
  expect_refused(with(kTorchrun, {{"BACKPLANE_RESTART_COUNT", "-1"}}),
                 "BACKPLANE_RESTART_COUNT is '-1'; allowed: a number from 0");
}

TEST(ReadLaunch, LeavesTorchrunThePortOfItsOwnStore) {
  const Environment agent{{"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  EXPECT_EQ(read(with(kTorchrun, agent)).master_port, 1235);
  EXPECT_EQ(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).master_port, 1234);
  expect_refused(with(with(kTorchrun, agent), {{"MASTER_PORT", "65535"}}),
                 "MASTER_PORT is 65535; allowed: a number from 1 to 65534");
}

TEST(ReadLaunch, ReadsMpi) {
  const Launch launch = read(kOpenMpi);
  EXPECT_EQ(launch.rank, 3u);
  EXPECT_EQ(launch.local_rank, 3u);
  EXPECT_EQ(launch.master_host, "127.0.0.1") << "all ranks are on this machine";
  EXPECT_EQ(launch.master_port, 29500);
  const Launch pmi = read(
      {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}});
  EXPECT_EQ(pmi.rank, 1u);
  EXPECT_EQ(pmi.launcher, "PMI");
  expect_refused(with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
                 "MASTER_ADDR is not set, and OMPI_COMM_WORLD_SIZE is 4");
}

TEST(ReadLaunch, ReadsSlurm) {
  const Launch launch = read(kSlurm);
  EXPECT_EQ(launch.rank, 2u);
  EXPECT_EQ(launch.world_size, 4u);
  EXPECT_EQ(launch.master_host, "node003-ib");
  EXPECT_EQ(launch.master_port, 23456);
  Environment without_list = kSlurm;
  without_list.erase("SLURM_STEP_NODELIST");
  EXPECT_EQ(read(without_list).master_host, "10.0.0.1");
  EXPECT_EQ(read(with(kSlurm, {{"SLURM_STEP_NODELIST", "a,b"}})).master_host, "a");
  EXPECT_EQ(read(with(kSlurm, {{"MASTER_ADDR", "x"}, {"MASTER_PORT", "7"}})).master_host, "x");
  expect_refused(with(kSlurm, {{"SLURM_STEP_NODELIST", "a[1"}}), "'a[1' has no ']'");
}

TEST(ReadLaunch, NamesWhatIsMissingOrNoNumber) {
  expect_refused({{"RANK", "0"}}, "RANK is 0 and WORLD_SIZE is not set");
  expect_refused({{"WORLD_SIZE", "2"}}, "WORLD_SIZE is 2 and RANK is not set");
  expect_refused(with(kTorchrun, {{"RANK", "-1"}}), "RANK is '-1'; allowed: a number from 0");
  expect_refused(with(kTorchrun, {{"RANK", "1x"}}), "RANK is '1x'");
  expect_refused(with(kTorchrun, {{"MASTER_PORT", "65536"}}), "MASTER_PORT is '65536'");
  expect_refused(with(kTorchrun, {{"MASTER_PORT", "0"}}), "MASTER_PORT is 0");
  expect_refused(with(kTorchrun, {{"LOCAL_RANK", ""}}), "LOCAL_RANK is not set");
  expect_refused(with(kTorchrun, {{"MASTER_ADDR", ""}}), "MASTER_ADDR is not set");
}

TEST(ReadLaunch, NamesContradictions) {
  expect_refused(with(kTorchrun, {{"RANK", "8"}}), "RANK is 8 and WORLD_SIZE is 8");
  expect_refused(with(kTorchrun, {{"LOCAL_RANK", "6"}}), "LOCAL_RANK is 6 and RANK is 5");
  expect_refused(with(kTorchrun, kOpenMpi), "RANK is 5 and OMPI_COMM_WORLD_RANK is 3");
  expect_refused(with(kOpenMpi, {{"PMI_RANK", "3"}, {"PMI_SIZE", "5"}}),
                 "OMPI_COMM_WORLD_SIZE is 4 and PMI_SIZE is 5");
}

TEST(ReadLaunch, TakesOneLauncherInsideAnother) {
  EXPECT_EQ(read(with(with(kTorchrun, kOpenMpi), {{"GROUP_RANK", "1"}})).rank, 5u);
  EXPECT_EQ(read(with(kTorchrun, kSlurm)).rank, 5u);
  EXPECT_EQ(read(with(kOpenMpi, kSlurm)).launcher, "Open MPI");
}

}  // namespace
}  // namespace bp::distributed

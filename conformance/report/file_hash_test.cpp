#include "conformance/report/file_hash.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace bp::conformance {
namespace {

TEST(FileHash, IsThatOfItsBytes) {
  const std::string path = testing::TempDir() + "file_hash_test." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << "abc";
  EXPECT_EQ(sha256_of_file(path),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  std::filesystem::remove(path);
}

TEST(FileHash, OfAFileThatCannotBeReadIsEmpty) { EXPECT_EQ(sha256_of_file("/no/such/file"), ""); }

}  // namespace
}  // namespace bp::conformance

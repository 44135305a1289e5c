#include "backends/vulkan/cache_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

namespace bp::vulkan {
namespace {

constexpr CacheIdentity kIdentity{0x1002, 0x73bf, {1, 2, 3, 4}};

// Returns the data of a driver of `identity`: its header of 32 bytes, and `size_bytes` more.
std::vector<std::byte> driver_data(const CacheIdentity& identity, size_t size_bytes) {
  std::vector<std::byte> data(32 + size_bytes, std::byte{0x5A});
  const uint32_t words[] = {32, 1, identity.vendor_id, identity.device_id};
  std::memcpy(data.data(), words, sizeof(words));
  std::memcpy(data.data() + sizeof(words), identity.uuid.data(), identity.uuid.size());
  return data;
}

class CacheFile : public testing::Test {
 protected:
  void SetUp() override {
    const testing::TestInfo* const test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "backplane_cache_" + test->name();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  void write(const std::vector<std::byte>& data) {
    std::string warning;
    ASSERT_TRUE(write_cache(path_, data, warning)) << warning;
  }

  // Returns the data and the warning.
  std::pair<std::vector<std::byte>, std::string> read(const CacheIdentity& identity = kIdentity) {
    std::string warning;
    std::vector<std::byte> data = read_cache(path_, identity, warning);
    return {std::move(data), warning};
  }

  void expect_ignored(const std::string& reason, const CacheIdentity& identity = kIdentity) {
    const auto [data, warning] = read(identity);
    EXPECT_TRUE(data.empty());
    EXPECT_NE(warning.find(reason), std::string::npos) << warning;
    EXPECT_NE(warning.find(path_), std::string::npos) << warning;
  }

  // Changes one byte of the file.
  void damage(std::streamoff offset) {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(offset);
    const auto byte = static_cast<char>(file.get() ^ 0x01);
    file.seekp(offset);
    file.put(byte);
  }

  std::string path_;
};

TEST_F(CacheFile, GivesBackWhatWasWritten) {
  const std::vector<std::byte> data = driver_data(kIdentity, 1000);
  write(data);
  EXPECT_EQ(read(), (std::pair{data, std::string()}));
}

TEST_F(CacheFile, MayBeMissingWithoutAWord) {
  EXPECT_EQ(read(), (std::pair{std::vector<std::byte>(), std::string()}));
}

TEST_F(CacheFile, IsReplacedAtOnce) {
  write(driver_data(kIdentity, 1000));
  const std::vector<std::byte> newer = driver_data(kIdentity, 10);
  write(newer);
  EXPECT_EQ(read().first, newer);
}

TEST_F(CacheFile, IsLeftAsideWhereOneByteIsDamaged) {
  for (const std::streamoff offset : {0, 8, 16, 24, 500}) {
    write(driver_data(kIdentity, 1000));
    damage(offset);
    expect_ignored("is damaged");
  }
}

TEST_F(CacheFile, IsLeftAsideWhereItIsCut) {
  write(driver_data(kIdentity, 1000));
  for (const size_t size_bytes : {800U, 30U, 3U, 0U}) {
    std::filesystem::resize_file(path_, size_bytes);
    expect_ignored("is damaged");
  }
}

TEST_F(CacheFile, IsLeftAsideOfAnotherDeviceOrDriver) {
  write(driver_data(kIdentity, 1000));
  expect_ignored("another device", {kIdentity.vendor_id, 0x1234, kIdentity.uuid});
  expect_ignored("another device", {0x10de, kIdentity.device_id, kIdentity.uuid});
  expect_ignored("another device", {kIdentity.vendor_id, kIdentity.device_id, {9}});
}

TEST_F(CacheFile, FollowsNoLinkThatSomebodyPlanted) {
  const std::string victim = path_ + ".victim", planted = path_ + "." + std::to_string(getpid());
  std::ofstream(victim) << "precious";
  std::filesystem::remove(planted);
  std::filesystem::create_symlink(victim, planted);
  write(driver_data(kIdentity, 10));
  std::filesystem::remove(planted);
  EXPECT_EQ(std::filesystem::file_size(victim), 8u);
  std::filesystem::remove(victim);
}

TEST_F(CacheFile, IsLeftAsideWhereItIsNoRegularFile) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  expect_ignored("is no regular file");
}

TEST_F(CacheFile, SaysWhereItCannotBeWritten) {
  std::string warning;
  EXPECT_FALSE(write_cache("/nonexistent/cache.bin", driver_data(kIdentity, 1), warning));
  EXPECT_NE(warning.find("/nonexistent/cache.bin cannot be written: No such file"),
            std::string::npos)
      << warning;
}

}  // namespace
}  // namespace bp::vulkan

// Archives come back as they were written, and anything else is refused.
#include "conformance/report/archive.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "conformance/usage_error.hpp"

namespace bp::conformance {
namespace {

const std::vector<ArchivedFile> kFiles = {
    {"empty", ""}, {"one", "1"}, {"block", std::string(512, 'b')}, {"more", std::string(513, 'm')}};

std::string refusal_of(const std::string& bytes) {
  try {
    static_cast<void>(read_archive(bytes, "x.tar"));
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

TEST(Archives, ComeBack) {
  const std::string bytes = write_archive("run", kFiles);
  EXPECT_EQ(bytes.size() % 512, 0u);
  const std::vector<ArchivedFile> again = read_archive(bytes, "x.tar");
  ASSERT_EQ(again.size(), kFiles.size());
  for (size_t i = 0; i < again.size(); ++i) {
    EXPECT_EQ(again[i].name, kFiles[i].name);
    EXPECT_EQ(again[i].bytes, kFiles[i].bytes);
  }
  EXPECT_EQ(write_archive("run", again), bytes) << "equal contents give equal bytes";
}

TEST(Archives, WithAnyByteOfAHeaderChangedAreRefused) {
  const std::string bytes = write_archive("run", {{"one", "1"}});
  for (size_t i = 0; i < 512; ++i) {
    std::string changed = bytes;
    changed[i] ^= 1;
    EXPECT_NE(refusal_of(changed), "") << "byte " << i;
  }
}

TEST(Archives, ThatAreCutOrGrowAreRefused) {
  const std::string bytes = write_archive("run", {{"one", std::string(700, 'x')}});
  for (const size_t size : {size_t{0}, size_t{1}, size_t{511}, size_t{512}, size_t{900},
                            bytes.size() - 512, bytes.size() - 1}) {
    EXPECT_NE(refusal_of(bytes.substr(0, size)), "") << size;
  }
  EXPECT_NE(refusal_of(bytes + "x"), "");
  EXPECT_NE(refusal_of(bytes + std::string(512, '\0')), "");
}

TEST(Archives, TakeNoNamesThatLeaveTheirFolder) {
  EXPECT_THROW(write_archive("run", {{"", ""}}), std::invalid_argument);
  EXPECT_THROW(write_archive("run", {{"a/b", ""}}), std::invalid_argument);
  EXPECT_THROW(write_archive("run", {{std::string(80, 'n'), ""}}), std::invalid_argument);
  EXPECT_NE(refusal_of(write_archive("..", {{"one", ""}})), "");
  EXPECT_NE(refusal_of(write_archive("", {{"one", ""}})), "") << "an absolute name";
  EXPECT_NE(refusal_of(write_archive("run", {{"..", ""}})), "");
  EXPECT_NE(refusal_of(write_archive("run", {{"one", ""}, {"one", "2"}})), "");
}

}  // namespace
}  // namespace bp::conformance

#include "backplane/runtime/progress.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>

namespace bp {
namespace {

// Returns what a bar of `total` steps writes to a file, which is not a terminal.
std::string written(uint64_t total, uint64_t steps) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::tmpfile(), std::fclose);
  {
    ProgressBar bar(total, "epoch 1", file.get());
    for (uint64_t i = 0; i < steps; ++i) bar.step();
    bar.finish("loss 0.5");
    bar.finish("again");
  }
  std::rewind(file.get());
  std::string text;
  for (int c = std::fgetc(file.get()); c != EOF; c = std::fgetc(file.get())) {
    text += static_cast<char>(c);
  }
  return text;
}

TEST(ProgressBar, WritesALineAtEachTenthWhereThereIsNoTerminal) {
  const std::string text = written(1000, 1000);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 10);
  EXPECT_NE(text.find("epoch 1 [==                      ] 100/1000"), std::string::npos) << text;
  EXPECT_NE(text.find("1000/1000"), std::string::npos);
  EXPECT_NE(text.find("loss 0.5\n"), std::string::npos);
  EXPECT_EQ(text.find("again"), std::string::npos) << "the end is written once";
  EXPECT_EQ(text.find('\r'), std::string::npos);
}

TEST(ProgressBar, EndsEarlyAndWithoutSteps) {
  EXPECT_NE(written(10, 3).find(" 3/10"), std::string::npos);
  EXPECT_NE(written(0, 0).find(" 0/0"), std::string::npos);
}

}  // namespace
}  // namespace bp

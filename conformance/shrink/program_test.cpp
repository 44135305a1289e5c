// The C program of a failing call, as text: shrink_test.py compiles such programs and runs them.
#include "conformance/shrink/program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "conformance/cases/engine/op_judge.hpp"
#include "conformance/tests/player_fixture.hpp"

namespace bp::conformance {
namespace {

class Programs : public testing::Test {
 protected:
  std::string program_of(const OpCase& op_case, std::vector<bp_option> options = {}) {
    const Subject subject{.target = &host_.target(), .options = std::move(options)};
    const Case which{.id = "op.add.f32.test"};
    Context t(subject, which, 1);
    return standalone_program(t, op_case);
  }
  static OpCase addition(const Shape& shape, const Fill& fill) {
    OpCase add = make_case(BP_OP_ADD, BP_F32, "", "", "");
    add.input("a", BP_F32, shape, fill).input("b", BP_F32, shape, fill).output("y", BP_F32, shape);
    add.reference = [](const CallData& data, const Numerics&) {
      Expected expected;
      const HostTensor &a = data.tensor("a"), &b = data.tensor("b");
      for (size_t i = 0; i < a.data.size(); ++i) expected.value.push_back(a.data[i] + b.data[i]);
      return std::vector<Expected>{expected};
    };
    return add;
  }

  Host host_;
};

TEST_F(Programs, HoldOptionsOfAnyCharacters) {
  const std::string text = program_of(addition({2}, kExactDense), {{"path",
                                                                    "a\"b\\c\nd\x01"
                                                                    "1"},
                                                                   {"empty", ""}});
  EXPECT_NE(text.find(R"( {"path", "a\"b\\c\012d\0011"}, {"empty", ""},)"), std::string::npos)
      << text.substr(0, 3000);
  EXPECT_NE(text.find("kOptionCount = 2"), std::string::npos);
}

TEST_F(Programs, HaveAnArrayAlsoWhereThereIsNoElement) {
  const std::string text = program_of(addition({0, 3}, kExactDense));
  EXPECT_NE(text.find("elements_0[] = {0};"), std::string::npos);
  EXPECT_NE(text.find("low_2[] = {0};"), std::string::npos);
  const std::string scalar = program_of(addition({}, kExactDense));
  EXPECT_NE(scalar.find("shape_0[] = {0};"), std::string::npos);
  EXPECT_NE(scalar.find(".ndim = 0"), std::string::npos);
}

TEST_F(Programs, WriteWhatIsNoNumberAsConstantsOfC) {
  const std::string text = program_of(addition({40}, kSpecial));
  for (const char* word : {"NAN", "-INFINITY", " INFINITY", "0x7f800000"}) {
    EXPECT_NE(text.find(word), std::string::npos) << word;
  }
  for (const char* word : {"nan,", "nan.", "inf,", "inf."}) {
    EXPECT_EQ(text.find(word), std::string::npos) << word;
  }
}

TEST_F(Programs, KeepToTheWidthOfALine) {
  std::istringstream lines(program_of(addition({500}, kRandom)));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("static const char kPlugin")) continue;  // The path is one word.
    EXPECT_LE(line.size(), 100u) << line;
  }
}

}  // namespace
}  // namespace bp::conformance

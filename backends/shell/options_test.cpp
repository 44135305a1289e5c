// The options of a user, and the sentences that refuse a value.
#include "backends/shell/options_test.hpp"

#include <string>

namespace bp {
namespace {

TEST(Options, AreFoundWhereTheUserGaveThem) {
  Values values{{"threads", "4"}};
  const bp_host host = host_with(values);
  EXPECT_EQ(find_option(host, "threads"), "4");
  EXPECT_EQ(find_option(host, "thread"), std::nullopt);
}

TEST(Options, AreRefusedWithWhatIsAllowed) {
  EXPECT_EQ(read_number("threads", "12", 1, 12), 12u);
  EXPECT_EQ(read_number("seed", "0x1f", 0, 64), 31u);
  EXPECT_EQ(refusal_of([] { read_number("threads", "13", 1, 12); }),
            "option threads: \"13\" is not a number from 1 to 12");
  EXPECT_NE(refusal_of([] { read_number("threads", "4 ", 1, 12); }), "");
  EXPECT_NE(refusal_of([] { read_number("threads", "", 1, 12); }), "");
  EXPECT_TRUE(read_yes_or_no("tf32", "yes"));
  EXPECT_FALSE(read_yes_or_no("tf32", "no"));
  EXPECT_EQ(refusal_of([] { read_yes_or_no("tf32", "on"); }),
            "option tf32: \"on\" is not yes or no");
}

TEST(ChosenDevices, AreAllWithoutTheOption) {
  Values values;
  const ChosenDevices devices(host_with(values));
  EXPECT_TRUE(devices.has(0) && devices.has(99));
  devices.check({});
}

TEST(ChosenDevices, AreThoseOfTheList) {
  Values values{{"devices", "2,0"}};
  const ChosenDevices devices(host_with(values));
  EXPECT_TRUE(devices.has(0));
  EXPECT_FALSE(devices.has(1));
  EXPECT_TRUE(devices.has(2));
  devices.check({"a", "b", "c"});
  EXPECT_EQ(refusal_of([&] {
              devices.check({"a", "b"});
            }),
            "option devices: there is no device 2; there are 0: a, 1: b");
  EXPECT_EQ(refusal_of([&] { devices.check({}); }),
            "option devices: there is no device 2; there is none that can be used");
}

TEST(ChosenDevices, RefuseWhatIsNoListOfNumbers) {
  for (const char* text : {"", "first", "-1", "0,", ",0", "0,,1", "0 1", "99999999999999999999"}) {
    Values values{{"devices", text}};
    EXPECT_EQ(refusal_of([&] { ChosenDevices{host_with(values)}; }),
              std::string("option devices: \"") + text +
                  "\" is not a list of device numbers, such as \"0,2\"");
  }
}

}  // namespace
}  // namespace bp

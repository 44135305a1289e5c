#include "conformance/runner/protocol.hpp"

#include <gtest/gtest.h>

namespace bp::conformance {
namespace {

const nlohmann::json kPayload = {{"case", "stream.new_stream_is_idle"}, {"attempt", 1}};

TEST(RecordReader, ReadsWhatWasEncodedWhenItComesByteByByte) {
  const std::string bytes =
      encode(RecordType::kRun, kPayload) + encode(RecordType::kBye, {{"a", 1}});
  RecordReader reader;
  std::vector<Record> records;
  for (const char byte : bytes) {
    reader.append(std::string_view(&byte, 1));
    while (std::optional<Record> record = reader.next()) records.push_back(*record);
  }
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].type, RecordType::kRun);
  EXPECT_EQ(records[0].payload, kPayload);
  EXPECT_EQ(records[1].type, RecordType::kBye);
  EXPECT_FALSE(reader.has_rest());
}

TEST(RecordReader, SaysThatARecordIsCut) {
  const std::string bytes = encode(RecordType::kEnd, kPayload);
  RecordReader reader;
  reader.append(std::string_view(bytes).substr(0, bytes.size() - 1));
  EXPECT_EQ(reader.next(), std::nullopt);
  EXPECT_TRUE(reader.has_rest());
}

TEST(RecordReader, RefusesAnUnknownType) {
  std::string bytes = encode(RecordType::kEnd, kPayload);
  for (const char type : {'\0', '\7', '\xff'}) {
    bytes[4] = type;
    RecordReader reader;
    reader.append(bytes);
    EXPECT_THROW(reader.next(), ProtocolError);
  }
}

TEST(RecordReader, RefusesARecordThatIsTooLongBeforeItHasArrived) {
  RecordReader reader;
  reader.append(std::string_view("\xff\xff\xff\x7f\5", 5));
  EXPECT_THROW(reader.next(), ProtocolError);
}

TEST(RecordReader, RefusesAPayloadThatIsNotAJsonObject) {
  for (const std::string_view text : {"{\"case\":", "17", "\xff\xfe", ""}) {
    std::string bytes = {static_cast<char>(text.size()), 0, 0, 0, 5};
    RecordReader reader;
    reader.append(bytes + std::string(text));
    EXPECT_THROW(reader.next(), ProtocolError) << text;
  }
}

TEST(Encode, ReplacesBytesThatAreNotUtf8) {
  RecordReader reader;
  reader.append(encode(RecordType::kEnd, {{"message", "broken \xff text"}}));
  EXPECT_NE(reader.next(), std::nullopt);
}

}  // namespace
}  // namespace bp::conformance

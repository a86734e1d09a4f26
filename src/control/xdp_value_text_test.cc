#include "control/xdp_value_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using testing::HasSubstr;
using Bytes = std::vector<uint8_t>;

struct GoodText {
  std::vector<std::string> words;
  Bytes bytes;
};

TEST(ValueText, IsReadAsANumberAnAddressAPrefixOrBytes) {
  const GoodText table[] = {
      {{"7"}, {7}},
      {{"0x1234"}, {0x34, 0x12}},
      {{"-1"}, {255, 255, 255, 255}},
      {{"4294967295"}, {255, 255, 255, 255}},
      {{"18446744073709551615"}, {255, 255, 255, 255, 255, 255, 255, 255}},
      {{"10.0.0.1"}, {10, 0, 0, 1}},
      {{"::1"}, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
      {{"10.0.0.0/8"}, {8, 0, 0, 0, 10, 0, 0, 0}},
      {{"52:54:00:12:34:56"}, {0x52, 0x54, 0, 0x12, 0x34, 0x56}},
      {{"1", "2", "0x0f"}, {1, 2, 15}},
      {{"hex", "01", "02", "ff"}, {1, 2, 255}},
  };
  for (const GoodText& row : table) {
    const Result<Bytes> bytes = parse_value_text(row.words, row.bytes.size(), "key");
    ASSERT_TRUE(bytes) << bytes.error().text;
    EXPECT_EQ(*bytes, row.bytes) << row.words[0];
  }
}

TEST(ValueText, IsRefusedWhereItDoesNotFitInOneSentenceWithTheSize) {
  struct Bad {
    std::vector<std::string> words;
    size_t bytes;
  };
  const Bad table[] = {
      {{}, 4},
      {{"256"}, 1},
      {{"-129"}, 1},
      {{"1"}, 3},
      {{"10.0.0.0/33"}, 8},
      {{"10.0.0.0/"}, 8},
      {{"10.0.0.0/8"}, 4},
      {{"10.0.0"}, 4},
      {{"1", "2"}, 3},
      {{"1", "300", "2"}, 3},
      {{"hex"}, 2},
      {{"hex", "0g"}, 1},
      {{"99999999999999999999999"}, 8},
      {{"52:54:00:12:34:5g"}, 6},
      {{"two"}, 4},
  };
  for (const Bad& row : table) {
    const Result<Bytes> bytes = parse_value_text(row.words, row.bytes, "key");
    ASSERT_FALSE(bytes) << (row.words.empty() ? "" : row.words[0]);
    EXPECT_TRUE(bytes.error().is_usage);
    EXPECT_THAT(bytes.error().text, HasSubstr(std::to_string(row.bytes)));
  }
}

TEST(ValueText, IsWrittenAsBytesAndTheNumberThatTheyMayBe) {
  EXPECT_EQ(value_text(Bytes{1, 2}), "01 02  (513)");
  EXPECT_EQ(value_text(Bytes{1, 2, 3}), "01 02 03");
}

}  // namespace
}  // namespace sluice

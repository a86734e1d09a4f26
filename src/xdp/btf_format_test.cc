#include "xdp/btf_format.h"

#include <bpf/btf.h>
#include <gtest/gtest.h>

#include <memory>

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

struct FreeBtf {
  void operator()(btf* types) const { ::btf__free(types); }
};

class BtfFormat : public testing::Test {
 protected:
  std::string format(int type_id, const Bytes& bytes) {
    Result<std::string> text = format_typed(*types_, static_cast<uint32_t>(type_id), bytes);
    return text ? *text : "refused: " + text.error().text;
  }
  btf* types() { return types_.get(); }

  std::unique_ptr<btf, FreeBtf> types_{::btf__new_empty()};
  int u8_ = ::btf__add_int(types(), "unsigned char", 1, 0);
  int char_ = ::btf__add_int(types(), "char", 1, BTF_INT_SIGNED);
  int s16_ = ::btf__add_int(types(), "short", 2, BTF_INT_SIGNED);
  int u32_ = ::btf__add_int(types(), "unsigned int", 4, 0);
  int u64_ = ::btf__add_int(types(), "unsigned long", 8, 0);
  int bool_ = ::btf__add_int(types(), "_Bool", 1, BTF_INT_BOOL);
};

TEST_F(BtfFormat, ShowsNumbersBySizeAndSign) {
  EXPECT_EQ(format(u32_, {1, 2, 0, 0}), "513");
  EXPECT_EQ(format(s16_, {0xff, 0xff}), "-1");
  EXPECT_EQ(format(u64_, Bytes(8, 0xff)), "18446744073709551615");
  EXPECT_EQ(format(bool_, {1}), "true");
  const int name = ::btf__add_typedef(types(), "__u32", u32_);
  EXPECT_EQ(format(name, {7, 0, 0, 0}), "7");
}

TEST_F(BtfFormat, ShowsStructuresWithTheirMembersNames) {
  const int address = ::btf__add_array(types(), u32_, u8_, 4);
  const int counter = ::btf__add_struct(types(), "counter", 16);
  ASSERT_EQ(::btf__add_field(types(), "packets", u64_, 0, 0), 0);
  ASSERT_EQ(::btf__add_field(types(), "address", address, 64, 0), 0);
  ASSERT_EQ(::btf__add_field(types(), "low", u32_, 96, 3), 0);
  ASSERT_EQ(::btf__add_field(types(), "high", u32_, 99, 5), 0);
  Bytes bytes{5, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1, 0b10101'011, 0, 0, 0};
  EXPECT_EQ(format(counter, bytes), R"({"packets":5,"address":[10,0,0,1],"low":3,"high":21})");
}

TEST_F(BtfFormat, ShowsEnumsByTheirNames) {
  const int verdict = ::btf__add_enum(types(), "verdict", 4);
  ASSERT_EQ(::btf__add_enum_value(types(), "DROP", 1), 0);
  ASSERT_EQ(::btf__add_enum_value(types(), "OTHER", -1), 0);
  EXPECT_EQ(format(verdict, {1, 0, 0, 0}), "\"DROP\"");
  EXPECT_EQ(format(verdict, Bytes(4, 0xff)), "\"OTHER\"");
  EXPECT_EQ(format(verdict, {9, 0, 0, 0}), "9");
}

TEST_F(BtfFormat, ShowsTextOnlyIfItIsText) {
  const int name = ::btf__add_array(types(), u32_, char_, 4);
  EXPECT_EQ(format(name, {'e', '"', '0', 0}), R"("e\"0")");
  EXPECT_EQ(format(name, {'e', 't', 'h', '0'}), "[101,116,104,48]") << "it does not end";
  EXPECT_EQ(format(name, {1, 0, 0, 0}), "[1,0,0,0]");
}

TEST_F(BtfFormat, RefusesTypesThatDoNotFitTheBytes) {
  EXPECT_EQ(format(u32_, {1, 2, 3}).substr(0, 8), "refused:");
  EXPECT_EQ(format(999, {1}).substr(0, 8), "refused:");
  const int huge = ::btf__add_array(types(), u32_, u64_, 0x7fffffff);
  EXPECT_EQ(format(huge, Bytes(64)).substr(0, 8), "refused:");
  int nested = u32_;
  for (int i = 0; i < 100; ++i) nested = ::btf__add_array(types(), u32_, nested, 1);
  EXPECT_EQ(format(nested, Bytes(4)).substr(0, 8), "refused:");
  // Nothing times a lot costs nothing.
  int empty = ::btf__add_struct(types(), "empty", 0);
  empty = ::btf__add_array(types(), u32_, empty, 0x7fffffff);
  EXPECT_EQ(format(empty, {}).substr(0, 8), "refused:");
}

TEST_F(BtfFormat, ShowsBytesWithoutATypeInHex) {
  EXPECT_EQ(format_bytes(Bytes{0x0a, 0xff}), R"(["0x0a","0xff"])");
  EXPECT_EQ(format_bytes({}), "[]");
}

TEST(BtfParse, TakesEachFormOfAValue) {
  const struct {
    const char* text;
    Bytes bytes;
  } rows[] = {
      {"hex 0a 00 ff 1", {10, 0, 255, 1}},
      {"10 0 0x10 1", {10, 0, 16, 1}},
      {"1234", {0xd2, 0x04, 0, 0}},
      {"0x4d2", {0xd2, 0x04}},
      {"-1", {255, 255}},
      {"-128", {0x80}},
      {"255", {255}},
      {"18446744073709551615", Bytes(8, 0xff)},
      {"1 2 3", {1, 2, 3}},
      {"10.0.0.1", {10, 0, 0, 1}},
      {"10.0.0.0/8", {8, 0, 0, 0, 10, 0, 0, 0}},
      {"::1", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}},
      {"fe80::/10", {10, 0, 0, 0, 0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}},
  };
  for (const auto& row : rows) {
    Result<Bytes> bytes = parse_bytes(row.text, row.bytes.size());
    ASSERT_TRUE(bytes) << bytes.error().text;
    EXPECT_EQ(*bytes, row.bytes) << row.text;
  }
}

TEST(BtfParse, RefusesWhatIsNoValueOfThatSize) {
  const struct {
    const char* text;
    size_t size;
  } rows[] = {{"", 4},           {"hex", 4},          {"hex 1g", 1},   {"hex 100", 1},
              {"256", 1},        {"-129", 1},         {"1 2 3", 4},    {"1 2 300 4", 4},
              {"10.0.0.1", 16},  {"10.0.0.0/33", 8},  {"10.0.0/8", 8}, {"fe80::/129", 20},
              {"10.0.0.0/8", 4}, {"hex 01 02 03", 4}, {"1x", 4},       {"-", 4}};
  for (const auto& row : rows) {
    Result<Bytes> bytes = parse_bytes(row.text, row.size);
    EXPECT_FALSE(bytes) << row.text;
    if (!bytes) {
      EXPECT_TRUE(bytes.error().is_usage);
    }
  }
}

}  // namespace
}  // namespace sluice

#include "vhost/message.h"

#include <gtest/gtest.h>

#include "vhost/session_test_kit.h"

namespace sluice {
namespace {

TEST(VhostMessage, HeadersAreRefusedWhenTheStreamCouldNotBeReadOn) {
  const struct {
    const char* name;
    MessageHeader header;
    bool good;
  } rows[] = {
      {"a plain request", {1, 1, 0}, true},
      {"a request that wants a reply", {5, 1 | 8, 72}, true},
      {"an unknown request, which the session refuses", {77, 1, 8}, true},
      {"the largest payload", {77, 1, kPayloadBytesMax}, true},
      {"version 0", {1, 0, 0}, false},
      {"version 2", {1, 2, 0}, false},
      {"version 3", {1, 3, 0}, false},
      {"a reply", {1, 1 | 4, 8}, false},
      {"one byte too many", {1, 1, kPayloadBytesMax + 1}, false},
      {"a payload of 4 GiB", {1, 1, UINT32_MAX}, false},
  };
  for (const auto& row : rows) {
    const auto parsed = parse_header(bytes_of(row.header));
    EXPECT_EQ(static_cast<bool>(parsed), row.good) << row.name;
    if (parsed) {
      EXPECT_EQ(parsed->request, row.header.request) << row.name;
    }
  }
}

TEST(VhostMessage, EveryRequestHasARowAndRefusesWrongSizesAndDescriptorCounts) {
  for (uint32_t request = 1; request <= kRequestMax; ++request) {
    const RequestRow* row = find_request(request);
    ASSERT_NE(row, nullptr) << request;
    EXPECT_EQ(static_cast<uint32_t>(row->request), request);
    EXPECT_LE(row->payload_bytes_max, kPayloadBytesMax) << row->name;
    EXPECT_TRUE(check_request({request, 1, row->payload_bytes_min}, row->fds_max)) << row->name;
    EXPECT_TRUE(check_request({request, 1, row->payload_bytes_max}, row->fds_min)) << row->name;
    EXPECT_FALSE(check_request({request, 1, row->payload_bytes_max + 1}, row->fds_min));
    EXPECT_FALSE(check_request({request, 1, row->payload_bytes_min}, row->fds_max + 1u));
    if (row->payload_bytes_min > 0) {
      EXPECT_FALSE(check_request({request, 1, row->payload_bytes_min - 1}, row->fds_min));
    }
    if (row->fds_min > 0) {
      EXPECT_FALSE(check_request({request, 1, row->payload_bytes_min}, row->fds_min - 1u));
    }
  }
  for (const uint32_t request : {0u, kRequestMax + 1, 0x10001u, UINT32_MAX}) {
    EXPECT_EQ(find_request(request), nullptr);
    EXPECT_FALSE(check_request({request, 1, 0}, 0));
  }
}

TEST(VhostMessage, RingFileWordsAreTakenOnlyWhole) {
  EXPECT_EQ(parse_vring_file(bytes_of(uint64_t{3}))->index, 3u);
  EXPECT_FALSE(parse_vring_file(bytes_of(uint64_t{3}))->no_fd);
  EXPECT_TRUE(parse_vring_file(bytes_of(uint64_t{0x103}))->no_fd);
  for (const uint64_t word : {uint64_t{0x10001}, uint64_t{0x201}, uint64_t{1} << 32, UINT64_MAX})
    EXPECT_FALSE(parse_vring_file(bytes_of(word))) << word;
  EXPECT_FALSE(parse_vring_file({}));
}

TEST(VhostMessage, MemoryTablesMustHoldTheRegionsThatTheyCount) {
  auto payload = memory_table({{0x1000, 0x2000, 0x7000, 0x3000}, {}});
  const auto regions = parse_memory_table(payload);
  ASSERT_TRUE(regions);
  ASSERT_EQ(regions->size(), 2u);
  EXPECT_EQ(raw((*regions)[0].guest_address), 0x1000u);
  EXPECT_EQ((*regions)[0].bytes, 0x2000u);
  EXPECT_EQ(raw((*regions)[0].frontend_address), 0x7000u);
  EXPECT_EQ((*regions)[0].mmap_offset, 0x3000u);

  payload[0] = 1;  // User-Mode Linux: room for two, one used
  EXPECT_EQ(parse_memory_table(payload)->size(), 1u);
  payload[0] = 3;
  EXPECT_FALSE(parse_memory_table(payload));
  payload[0] = 9;
  EXPECT_FALSE(parse_memory_table(payload));
  payload[0] = 0;
  EXPECT_TRUE(parse_memory_table(payload)->empty());
  EXPECT_FALSE(parse_memory_table(std::vector<uint8_t>(7)));
  EXPECT_FALSE(parse_memory_table(std::vector<uint8_t>(kMemoryTableBytesMax + 1)));
}

TEST(VhostMessage, ConfigurationAccessesEndWhereTheConfigurationEnds) {
  const struct {
    uint32_t offset, bytes;
    size_t carried;
    bool good;
  } rows[] = {
      {0, 0, 0, true},
      {0, 1, 1, true},
      {5, 1, 1, true},
      {0, 256, 256, true},
      {255, 1, 1, true},
      {0, 2, 1, false},
      {0, 1, 2, false},
      {256, 1, 1, false},
      {UINT32_MAX, 1, 1, false},
      {0, UINT32_MAX, 0, false},
      {UINT32_MAX, UINT32_MAX, 8, false},
  };
  for (const auto& row : rows) {
    const auto payload = config_access(row.offset, row.bytes, row.carried);
    EXPECT_EQ(static_cast<bool>(parse_config_access(payload)), row.good)
        << row.offset << " " << row.bytes << " " << row.carried;
  }
  EXPECT_FALSE(parse_config_access(std::vector<uint8_t>(11)));
}

TEST(VhostMessage, ProtocolFeaturesHaveNamesAlsoUnknownOnes) {
  EXPECT_EQ(protocol_feature_names(protocol_feature::mq | (uint64_t{1} << 60)),
            (std::vector<std::string>{"mq", "bit_60"}));
}

}  // namespace
}  // namespace sluice

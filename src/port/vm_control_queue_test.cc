// The control queue: each command, and each way to get one wrong. [virtio 5.1.6.5]
#include "port/vm_control_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "port/vm_port.h"
#include "testing/vm_test_kit.h"

namespace sluice {
namespace {

constexpr uint8_t kOk = 0, kError = 1;

Bytes command(uint8_t command_class, uint8_t code, const Bytes& data = {}) {
  return joined(Bytes{command_class, code}, data);
}
Bytes le16(uint16_t value) {
  return {static_cast<uint8_t>(value), static_cast<uint8_t>(value >> 8)};
}
Bytes le64(uint64_t value) {
  Bytes bytes(8);
  std::memcpy(bytes.data(), &value, 8);
  return bytes;
}
// Two tables that say how many addresses they hold, with as many as `unicast` and `multicast`.
Bytes mac_tables(uint32_t says_unicast, uint32_t unicast, uint32_t says_multicast,
                 uint32_t multicast) {
  Bytes all;
  for (const auto& [says, holds] :
       {std::pair{says_unicast, unicast}, {says_multicast, multicast}}) {
    Bytes count(4);
    std::memcpy(count.data(), &says, 4);
    all = joined(joined(all, count), Bytes(size_t{holds} * 6, 2));
  }
  return all;
}

class ControlQueueTest : public ::testing::Test {
 protected:
  void start(uint64_t without = 0) {
    port = std::move(*VmPort::create({.name = "a", .queue_pairs = 4}));
    port->set_peer_takes({true, true, true, true, true});
    features = port->offered_features() & ~without & ~(feature::event_idx | feature::ring_packed);
    port->session_opened();
    port->features_negotiated(features);
    for (uint32_t index = 0; index < 8; index += 2) {
      data.push_back(std::make_unique<DrivenRing>(guest, FakeDriverOptions{.size = 16}));
      ASSERT_TRUE(port->ring_start(data.back()->start(index, features)));
    }
    control = std::make_unique<DrivenRing>(guest, FakeDriverOptions{.size = 64});
    ASSERT_TRUE(port->ring_start(control->start(8, features)));
  }
  void TearDown() override {
    for (uint32_t index = 0; index <= 8; ++index) port->ring_stop(index);
    port->session_closed();
  }
  // The answer to a chain, or nullopt when none came.
  std::optional<uint8_t> answer_to(const ChainBuilder& chain) {
    EXPECT_TRUE(control->driver.offer(chain));
    write_event(control->kick);
    EXPECT_TRUE(is_readable(port->control_fd()));
    port->on_control_kick();
    const auto used = control->driver.take_used();
    if (!used || used->data.empty()) return std::nullopt;
    EXPECT_EQ(used->bytes, 1u);
    return used->data[0];
  }
  std::optional<uint8_t> answer_to(const Bytes& words) {
    return answer_to(ChainBuilder{}.readable(words).writable(1));
  }
  size_t active_count() {
    const auto active = port->active_queues();
    return static_cast<size_t>(std::count(active.begin(), active.end(), true));
  }

  FakeGuestMemory guest;
  std::unique_ptr<VmPort> port;
  uint64_t features = 0;
  std::vector<std::unique_ptr<DrivenRing>> data;
  std::unique_ptr<DrivenRing> control;
};

TEST_F(ControlQueueTest, AnswersEveryCommandAndEveryWrongOne) {
  start();
  struct Row {
    const char* name;
    Bytes words;
    uint8_t answer;
  };
  const Row rows[] = {
      {"promiscuous on", command(0, 0, {1}), kOk},
      {"all-multicast", command(0, 1, {1}), kOk},
      {"no broadcast", command(0, 5, {1}), kOk},
      {"a receive mode too many", command(0, 6, {1}), kError},
      {"a receive mode without a value", command(0, 0), kError},
      {"a receive mode with more bytes", command(0, 0, {0, 1, 2}), kOk},
      {"MAC tables, empty", command(1, 0, mac_tables(0, 0, 0, 0)), kOk},
      {"MAC tables", command(1, 0, mac_tables(2, 2, 3, 3)), kOk},
      {"MAC tables, large", command(1, 0, mac_tables(2000, 2000, 3000, 3000)), kOk},
      {"MAC tables, larger than we read", command(1, 0, mac_tables(6000, 6000, 0, 0)), kError},
      {"MAC tables, one missing", command(1, 0, Bytes(4, 0)), kError},
      {"MAC table shorter than it says", command(1, 0, mac_tables(3, 2, 0, 0)), kError},
      {"MAC table that says 2^32 - 1", command(1, 0, mac_tables(0xffffffff, 1, 0, 0)), kError},
      {"second table that says 2^31", command(1, 0, mac_tables(0, 0, 1u << 31, 1)), kError},
      {"MAC address", command(1, 1, {2, 3, 4, 5, 6, 7}), kOk},
      {"MAC address, short", command(1, 1, {2, 3, 4, 5, 6}), kError},
      {"an unknown MAC command", command(1, 2, {2, 3, 4, 5, 6, 7}), kError},
      {"VLAN add", command(2, 0, le16(5)), kOk},
      {"VLAN delete", command(2, 1, le16(5)), kOk},
      {"VLAN 4096", command(2, 0, le16(4096)), kError},
      {"VLAN of one byte", command(2, 0, {5}), kError},
      {"an unknown VLAN command", command(2, 2, le16(5)), kError},
      {"announce acknowledged", command(3, 0), kOk},
      {"an unknown announce command", command(3, 1), kError},
      {"pairs 1", command(4, 0, le16(1)), kOk},
      {"pairs 4", command(4, 0, le16(4)), kOk},
      {"pairs 0", command(4, 0, le16(0)), kError},
      {"pairs 5", command(4, 0, le16(5)), kError},
      {"pairs 0x8000", command(4, 0, le16(0x8000)), kError},
      {"pairs of one byte", command(4, 0, {1}), kError},
      {"RSS, not offered", command(4, 1, Bytes(100, 0)), kError},
      {"offloads none", command(5, 0, le64(0)), kOk},
      {"offloads checksum", command(5, 0, le64(feature::guest_csum)), kOk},
      {"offloads that are none", command(5, 0, le64(feature::mq)), kError},
      {"offloads unknown", command(5, 0, le64(1ull << 62)), kError},
      {"offloads short", command(5, 0, Bytes(7, 0)), kError},
      {"an unknown offload command", command(5, 1, le64(0)), kError},
      {"an unknown class", command(6, 0), kError},
      {"class 255", command(255, 255, Bytes(40, 255)), kError},
      {"one byte", Bytes{4}, kError},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    EXPECT_EQ(answer_to(row.words), row.answer);
    // In single bytes as well, and from an indirect table.
    if (row.words.size() > 40) continue;
    ChainBuilder bytewise;
    for (const uint8_t byte : row.words) bytewise.readable(std::span(&byte, 1));
    EXPECT_EQ(answer_to(bytewise.writable(1).indirect()), row.answer);
  }
}

TEST_F(ControlQueueTest, AnswersInTheFirstWritableByteOnly) {
  start();
  const uint64_t buffer = guest.allocate(64);
  guest.fill(buffer, 64, 0xee);
  EXPECT_TRUE(control->driver.offer(
      ChainBuilder{}.readable(command(0, 0, {1})).writable(0).writable_at(buffer, 64)));
  port->on_control_kick();
  EXPECT_EQ(control->driver.take_used()->bytes, 1u);
  EXPECT_EQ(guest.read(buffer, 1)[0], kOk);
  EXPECT_EQ(guest.read(buffer + 1, 63), Bytes(63, 0xee));
}

TEST_F(ControlQueueTest, AnswersACommandWithoutAnyWords) {
  start();
  EXPECT_EQ(answer_to(ChainBuilder{}.writable(1)), kError);
}

TEST_F(ControlQueueTest, BreaksWithoutAByteForTheAnswerAndCostsNothingThen) {
  start();
  EXPECT_EQ(answer_to(ChainBuilder{}.readable(command(0, 0, {1}))), std::nullopt);
  EXPECT_EQ(take_event(control->error), 1u);
  EXPECT_TRUE(control->driver.offer(ChainBuilder{}.readable(command(0, 0, {1})).writable(1)));
  write_event(control->kick);
  EXPECT_FALSE(is_readable(port->control_fd())) << "its kicks wake nobody";
  port->on_control_kick();
  EXPECT_EQ(take_event(control->error), 0u);
  EXPECT_EQ(active_count(), 1u) << "the data rings live on";
  // It works again after a restart.
  port->ring_stop(8);
  control = std::make_unique<DrivenRing>(guest, FakeDriverOptions{.size = 64});
  ASSERT_TRUE(port->ring_start(control->start(8, features)));
  EXPECT_EQ(answer_to(command(0, 0, {1})), kOk);
}

TEST_F(ControlQueueTest, SetsTheNumberOfPairs) {
  start();
  for (const uint16_t pairs : {1, 4, 2, 3, 1}) {
    EXPECT_EQ(answer_to(command(4, 0, le16(pairs))), kOk);
    EXPECT_EQ(active_count(), pairs);
  }
}

TEST_F(ControlQueueTest, SwitchesOffloadsWithinWhatWasAgreed) {
  start(feature::guest_tso6);
  EXPECT_TRUE(port->takes().tso4);
  EXPECT_EQ(answer_to(command(5, 0, le64(feature::guest_csum))), kOk);
  EXPECT_EQ(port->takes(), (OffloadSet{.csum = true}));
  EXPECT_EQ(answer_to(command(5, 0, le64(feature::guest_tso4))), kOk);
  EXPECT_EQ(port->takes(), OffloadSet{}) << "segmentation needs the checksum";
  EXPECT_EQ(answer_to(command(5, 0, le64(feature::guest_csum | feature::guest_tso6))), kError);
  EXPECT_EQ(port->takes(), OffloadSet{}) << "a refused command changes nothing";
}

TEST_F(ControlQueueTest, RefusesWhatWasNotNegotiated) {
  start(feature::ctrl_guest_offloads);
  EXPECT_EQ(answer_to(command(5, 0, le64(0))), kError);
}

TEST_F(ControlQueueTest, RemembersModesAndAddressUntilTheFrontEndGoes) {
  start();
  answer_to(command(0, 0, {0}));
  answer_to(command(1, 0, mac_tables(2, 2, 3, 3)));
  answer_to(command(2, 0, le16(5)));
  answer_to(command(1, 1, {2, 3, 4, 5, 6, 7}));
  EXPECT_FALSE(port->receive_modes().promiscuous);
  EXPECT_EQ(port->receive_modes().mac_filter_entries, 5u);
  EXPECT_EQ(port->receive_modes().vlan_entries, 1u);
  Bytes mac(6);
  port->read_config(0, mac);
  EXPECT_EQ(mac, (Bytes{2, 3, 4, 5, 6, 7}));
  for (uint32_t index = 0; index <= 8; ++index) port->ring_stop(index);
  port->session_closed();
  EXPECT_TRUE(port->receive_modes().promiscuous);
  EXPECT_EQ(port->receive_modes().mac_filter_entries, 0u);
}

TEST_F(ControlQueueTest, ServesMoreCommandsThanARingHoldsInSeveralRounds) {
  start();
  size_t answered = 0;
  for (int round = 0; round < 10; ++round) {
    while (control->driver.offer(ChainBuilder{}.readable(command(0, 0, {1})).writable(1))) {
    }
    write_event(control->kick);
    while (is_readable(port->control_fd())) port->on_control_kick();
    answered += control->driver.take_all_used().size();
  }
  EXPECT_EQ(answered, 320u);
}

TEST_F(ControlQueueTest, ServesWhatWasThereBeforeItsStart) {
  port = std::move(*VmPort::create({.name = "a"}));
  features = port->offered_features() & ~(feature::event_idx | feature::ring_packed);
  port->session_opened();
  port->features_negotiated(features);
  control = std::make_unique<DrivenRing>(guest, FakeDriverOptions{.size = 64});
  EXPECT_TRUE(control->driver.offer(ChainBuilder{}.readable(command(0, 0, {1})).writable(1)));
  ASSERT_TRUE(port->ring_start(control->start(2, features)));
  EXPECT_EQ(control->driver.take_used()->data, Bytes{kOk});
}

}  // namespace
}  // namespace sluice

// What a client may say of a program, right and wrong. What the kernel has to say of it is tested
// with real ones, in tests/test_xdp.py.
#include "control/xdp_wire.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace sluice {
namespace {

using nlohmann::json;
using testing::HasSubstr;

Fd some_file() { return Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC)); }

XdpObject two_programs() {
  XdpObject object;
  object.path = "a.o";
  object.programs.push_back({"first", {{0xb7, 0, 0, 0, 2}, {0x95, 0, 0, 0, 0}}, some_file()});
  object.programs.push_back({"second", {{0x95, 0, 0, 0, 0}}, some_file()});
  object.maps.push_back({.shape = {.type = BPF_MAP_TYPE_HASH,
                                   .key_size = 4,
                                   .value_size = 8,
                                   .max_entries = 10,
                                   .name = "m"},
                         .inner = {},
                         .fd = some_file(),
                         .initial = {}});
  object.slots.push_back({0, 3, 1});
  return object;
}

class XdpWire : public testing::Test {
 protected:
  XdpWire() {
    auto wired = object_to_wire(two_programs_);
    EXPECT_TRUE(wired);
    description_ = wired->description;
    for (const int fd : wired->fds) fds_.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 3));
  }
  std::string refusal() {
    const auto object = object_from_wire(description_, fds_);
    return object ? "" : object.error().text;
  }
  const XdpObject two_programs_ = two_programs();
  json description_;
  std::vector<Fd> fds_;
};

TEST_F(XdpWire, BringsEverythingOver) {
  const auto object = object_from_wire(description_, fds_);
  ASSERT_TRUE(object) << object.error().text;
  EXPECT_EQ(object->path, "a.o");
  ASSERT_EQ(object->programs.size(), 2u);
  EXPECT_EQ(object->programs[0].name, "first");
  EXPECT_EQ(object->programs[0].instructions.size(), 2u);
  EXPECT_EQ(object->programs[0].instructions[0].imm, 2);
  EXPECT_EQ(object->programs[1].instructions[0].code, 0x95);
  EXPECT_TRUE(object->programs[1].fd.valid());
  ASSERT_EQ(object->maps.size(), 1u);
  EXPECT_EQ(object->maps[0].shape.name, "m");
  EXPECT_EQ(object->maps[0].shape.max_entries, 10u);
  ASSERT_EQ(object->slots.size(), 1u);
  EXPECT_EQ(object->slots[0].index, 3u);
}

TEST_F(XdpWire, TakesNamesInOneLineOnly) {
  description_["path"] = "a.o\n12:00 error: \x1b[31mforged";
  description_["programs"][0]["name"] = "x\ny";
  const auto object = object_from_wire(description_, fds_);
  ASSERT_TRUE(object);
  for (const std::string& text : {object->path, object->programs[0].name}) {
    EXPECT_EQ(text.find('\n'), std::string::npos);
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
  }
}
TEST_F(XdpWire, RefusesADescriptorTooFewOrTooMany) {
  fds_.emplace_back(some_file());
  EXPECT_THAT(refusal(), HasSubstr("5 descriptors"));
  fds_.resize(3);
  EXPECT_THAT(refusal(), HasSubstr("3 descriptors"));
}
TEST_F(XdpWire, RefusesInstructionsThatComeInAnyOtherFile) {
  fds_[0] = some_file();
  EXPECT_THAT(refusal(), HasSubstr("file of memory"));
}
TEST_F(XdpWire, RefusesFewerInstructionsThanAnnounced) {
  description_["programs"][0]["instructions"] = 50u;
  EXPECT_THAT(refusal(), HasSubstr("fewer than announced"));
}
TEST_F(XdpWire, RefusesNumbersThatAreNone) {
  for (const json& wrong : {json(-1), json("two"), json(1e18), json(2'000'000u), json()}) {
    description_["programs"][0]["instructions"] = wrong;
    EXPECT_NE(refusal(), "") << wrong;
  }
}
TEST_F(XdpWire, RefusesMapsAndSlotsThatAreNone) {
  const json good = description_;
  for (const json& wrong : {json(1), json::object(), json::array({1}), json()}) {
    description_ = good;
    description_["maps"] = wrong;
    EXPECT_NE(refusal(), "") << wrong;
    description_ = good;
    description_["slots"] = wrong;
    if (!wrong.is_object()) {
      EXPECT_NE(refusal(), "") << wrong;
    }
  }
  for (const char* key : {"type", "key_size", "value_size", "max_entries", "flags", "extra"}) {
    description_ = good;
    description_["maps"][0].erase(key);
    EXPECT_NE(refusal(), "") << key;
  }
}
TEST_F(XdpWire, RefusesMorePartsThanAProgramMayHave) {
  for (int i = 0; i < 100; ++i) description_["maps"].push_back(description_["maps"][0]);
  EXPECT_THAT(refusal(), HasSubstr("up to 64"));
}

}  // namespace
}  // namespace sluice

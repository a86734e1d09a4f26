#include "memory/guest_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <numeric>
#include <thread>

#include "memory/sigbus.h"
#include "testing/fake_guest_memory.h"

namespace sluice {
namespace {

constexpr uint64_t kMiB = 1 << 20;

Fd memory_file(uint64_t bytes) {
  Fd file(::memfd_create("test", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  return file;
}

// Two adjacent regions, a hole, and one more: [1, 2) [2, 3) hole [4, 5) MiB. The second begins in
// the middle of a page of its file.
std::vector<FakeRegion> three_regions() {
  return {{.guest_address = 1 * kMiB, .bytes = kMiB},
          {.guest_address = 2 * kMiB, .bytes = kMiB, .file_offset = 0x1230},
          {.guest_address = 4 * kMiB, .bytes = kMiB}};
}

TEST(GuestMemory, TranslatesEachRangeWithItsLength) {
  FakeGuestMemory guest(three_regions());
  const auto memory = guest.share();
  const struct {
    const char* what;
    uint64_t address;
    uint64_t bytes;
    size_t pieces;  // 0: not mapped
  } rows[] = {
      {"address 0 where no region is", 0, 1, 0},
      {"the first byte of a region", 1 * kMiB, 1, 1},
      {"one byte before a region", kMiB - 1, 1, 0},
      {"into a region from before it", kMiB - 1, 2, 0},
      {"a whole region", kMiB, kMiB, 1},
      {"ending exactly at a region's end", 5 * kMiB - 100, 100, 1},
      {"one byte past a region's end", 5 * kMiB - 100, 101, 0},
      {"past all RAM", 5 * kMiB, 1, 0},
      {"far past all RAM", uint64_t{1} << 60, 1, 0},
      {"in a hole", 3 * kMiB + 5, 10, 0},
      {"from a region into a hole", 3 * kMiB - 5, 10, 0},
      {"from a hole into a region", 4 * kMiB - 5, 10, 0},
      {"across a hole, both ends mapped", 3 * kMiB - 5, kMiB + 10, 0},
      {"over two adjacent regions", 2 * kMiB - 5, 10, 2},
      {"both adjacent regions whole", kMiB, 2 * kMiB, 2},
      {"both adjacent regions and one byte", kMiB, 2 * kMiB + 1, 0},
      {"a length that wraps past 2^64", 2 * kMiB, UINT64_MAX - kMiB, 0},
      {"a length that wraps to the address itself", kMiB, UINT64_MAX, 0},
      {"the last address", UINT64_MAX, 1, 0},
      {"from the last address to the first region", UINT64_MAX, kMiB + 3, 0},
      {"0xffffffff bytes, as much as a descriptor can say", kMiB, 0xffffffff, 0},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    SpanList spans(8);
    const auto one = memory->translate(GuestAddr{row.address}, row.bytes);
    EXPECT_EQ(one.has_value(), row.pieces == 1);
    if (one) {
      EXPECT_EQ(one->size(), row.bytes);
    }
    const auto result = memory->translate(GuestAddr{row.address}, row.bytes, spans);
    EXPECT_EQ(result, row.pieces == 0 ? GuestMemory::Translation::not_mapped
                                      : GuestMemory::Translation::ok);
    EXPECT_EQ(spans.size(), row.pieces);
    if (row.pieces > 0) {
      EXPECT_EQ(total_bytes(spans.all()), row.bytes);
    }
  }
}

TEST(GuestMemory, GivesTheBytesThatTheGuestWroteThere) {
  FakeGuestMemory guest(three_regions());
  std::vector<uint8_t> written(5000);
  std::iota(written.begin(), written.end(), uint8_t{7});
  for (const uint64_t address : {2 * kMiB - 2500, 1 * kMiB, 2 * kMiB, 5 * kMiB - 5000}) {
    SCOPED_TRACE(address);
    guest.write(address, written);
    SpanList spans(4);
    ASSERT_EQ(guest.share()->translate(GuestAddr{address}, written.size(), spans),
              GuestMemory::Translation::ok);
    std::vector<uint8_t> got(written.size());
    EXPECT_EQ(copy_out(spans.all(), 0, got.data(), got.size()), got.size());
    EXPECT_EQ(got, written);
    std::reverse(got.begin(), got.end());
    EXPECT_EQ(copy_in(spans.all(), 0, got.data(), got.size()), got.size());
    EXPECT_EQ(guest.read(address, got.size()), got);
  }
}

TEST(GuestMemory, LeavesTheListAloneWhenTranslationFails) {
  FakeGuestMemory guest(three_regions());
  SpanList spans(3);
  ASSERT_EQ(guest.share()->translate(GuestAddr{kMiB}, 10, spans), GuestMemory::Translation::ok);
  EXPECT_EQ(guest.share()->translate(GuestAddr{2 * kMiB - 5}, 2 * kMiB, spans),
            GuestMemory::Translation::not_mapped);
  EXPECT_EQ(spans.size(), 1u);
  ASSERT_EQ(guest.share()->translate(GuestAddr{kMiB}, 10, spans), GuestMemory::Translation::ok);
  EXPECT_EQ(guest.share()->translate(GuestAddr{2 * kMiB - 5}, 10, spans),
            GuestMemory::Translation::list_full);
  EXPECT_EQ(spans.size(), 2u);
}

TEST(GuestMemory, TranslatesFrontEndAddressesWithinOneRegionOnly) {
  FakeGuestMemory guest(three_regions());
  const auto at = [](uint64_t guest_address) {
    return FrontendAddr{FakeGuestMemory::frontend_address(guest_address)};
  };
  EXPECT_TRUE(guest.share()->translate(at(kMiB), kMiB));
  EXPECT_TRUE(guest.share()->translate(at(5 * kMiB - 1), 1));
  EXPECT_FALSE(guest.share()->translate(at(5 * kMiB - 1), 2));
  EXPECT_FALSE(guest.share()->translate(at(2 * kMiB - 1), 2));
  EXPECT_FALSE(guest.share()->translate(at(kMiB - 1), 1));
  EXPECT_FALSE(guest.share()->translate(FrontendAddr{kMiB}, 1));
  EXPECT_FALSE(guest.share()->translate(at(kMiB), UINT64_MAX));
}

struct AddRow {
  const char* what;
  RegionDescription region;
  const char* words;  // of the refusal; empty: taken
};

TEST(GuestMemory, RefusesRegionsThatCannotBe) {
  constexpr uint64_t kEnd = UINT64_MAX;
  const AddRow rows[] = {
      {"a plain one", {GuestAddr{4 * kMiB}, kMiB, FrontendAddr{4 * kMiB}, 0}, ""},
      {"an odd offset", {GuestAddr{4 * kMiB}, 4096, FrontendAddr{4 * kMiB}, 17}, ""},
      {"one byte", {GuestAddr{4 * kMiB}, 1, FrontendAddr{4 * kMiB}, kMiB - 1}, ""},
      {"adjacent above", {GuestAddr{kMiB}, kMiB, FrontendAddr{kMiB}, 0}, ""},
      {"no bytes", {GuestAddr{4 * kMiB}, 0, FrontendAddr{4 * kMiB}, 0}, "0 bytes"},
      {"guest address overflow", {GuestAddr{kEnd - 5}, kMiB, FrontendAddr{0}, 0}, "overflows"},
      {"up to the very last byte", {GuestAddr{kEnd - 9}, 10, FrontendAddr{0}, 0}, "overflows"},
      {"front-end overflow", {GuestAddr{4 * kMiB}, kMiB, FrontendAddr{kEnd - 5}, 0}, "overflows"},
      {"offset overflow", {GuestAddr{4 * kMiB}, kMiB, FrontendAddr{0}, kEnd - 5}, "overflows"},
      {"an offset that is no off_t",
       {GuestAddr{4 * kMiB}, kMiB, FrontendAddr{4 * kMiB}, uint64_t{INT64_MAX} - 5},
       "overflows"},
      {"longer than its file", {GuestAddr{4 * kMiB}, kMiB + 1, FrontendAddr{4 * kMiB}, 0}, "needs"},
      {"offset past the file", {GuestAddr{4 * kMiB}, kMiB, FrontendAddr{4 * kMiB}, 4096}, "needs"},
      {"as large as can be said",
       {GuestAddr{0}, uint64_t{INT64_MAX}, FrontendAddr{4 * kMiB}, 0},
       "overlaps"},
      {"the same again", {GuestAddr{0}, kMiB, FrontendAddr{0}, 0}, "overlaps"},
      {"overlap by a byte", {GuestAddr{kMiB - 1}, 10, FrontendAddr{4 * kMiB}, 0}, "overlaps"},
      {"front-end overlap", {GuestAddr{4 * kMiB}, 10, FrontendAddr{kMiB - 1}, 0}, "overlaps"},
  };
  for (const AddRow& row : rows) {
    SCOPED_TRACE(row.what);
    GuestMemory::Builder builder;
    const Fd file = memory_file(kMiB);
    ASSERT_TRUE(builder.add({GuestAddr{0}, kMiB, FrontendAddr{0}, 0}, file));
    const auto added = builder.add(row.region, file);
    EXPECT_EQ(static_cast<bool>(added), std::string_view(row.words).empty());
    if (!added) {
      EXPECT_NE(added.error().text.find(row.words), std::string::npos) << added.error().text;
    }
    EXPECT_EQ(builder.build()->region_count(), added ? 2u : 1u);
  }
}

TEST(GuestMemory, RefusesDescriptorsThatAreNoMemoryFiles) {
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const Fd pipe_read(ends[0]), pipe_write(ends[1]);
  const Fd event(::eventfd(0, EFD_CLOEXEC));
  const Fd folder(::open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const Fd none;
  const Fd device(::open("/dev/zero", O_RDWR | O_CLOEXEC));
  Fd read_only;
  {
    const Fd file = memory_file(kMiB);
    read_only = Fd(::open(fmt::format("/proc/self/fd/{}", file.get()).c_str(), O_RDONLY));
  }
  const Fd* const fds[] = {&pipe_read, &event, &folder, &none, &device, &read_only};
  for (const Fd* fd : fds) {
    GuestMemory::Builder builder;
    const auto added = builder.add({GuestAddr{0}, 4096, FrontendAddr{0}, 0}, *fd);
    EXPECT_FALSE(added);
    if (!added) {
      EXPECT_FALSE(added.error().text.empty());
    }
  }
}

TEST(GuestMemory, TakesAsManyRegionsAsThereAreSlots) {
  const Fd file = memory_file(4096);
  GuestMemory::Builder builder;
  for (uint64_t i = 0; i < kMemorySlotsMax; ++i) {
    ASSERT_TRUE(builder.add({GuestAddr{i * 8192}, 4096, FrontendAddr{i * 8192}, 0}, file));
  }
  EXPECT_FALSE(builder.add({GuestAddr{1 << 30}, 4096, FrontendAddr{1 << 30}, 0}, file));
  const auto memory = builder.build();
  EXPECT_EQ(memory->region_count(), kMemorySlotsMax);
  EXPECT_EQ(memory->total_bytes(), kMemorySlotsMax * 4096);
  EXPECT_TRUE(memory->translate(GuestAddr{(kMemorySlotsMax - 1) * 8192}, 4096));
}

TEST(GuestMemory, RemovesExactlyTheRegionThatIsNamed) {
  FakeGuestMemory guest(three_regions());
  GuestMemory::Builder builder(*guest.share());
  RegionDescription wrong = guest.description(1);
  wrong.bytes -= 1;
  EXPECT_FALSE(builder.remove(wrong));
  ASSERT_TRUE(builder.remove(guest.description(1)));
  EXPECT_FALSE(builder.remove(guest.description(1)));
  const auto smaller = builder.build();
  EXPECT_FALSE(smaller->translate(GuestAddr{2 * kMiB}, 1));
  EXPECT_TRUE(smaller->translate(GuestAddr{4 * kMiB}, 1));
  // The earlier snapshot is as it was.
  EXPECT_TRUE(guest.share()->translate(GuestAddr{2 * kMiB}, 1));
}

size_t mapping_count() {
  std::ifstream maps("/proc/self/maps");
  size_t lines = 0;
  for (std::string line; std::getline(maps, line);)
    lines += line.find("memfd:") != std::string::npos;
  return lines;
}

TEST(GuestMemory, UnmapsWhatNoSnapshotNames) {
  const size_t before = mapping_count();
  const Fd file = memory_file(4096);
  std::shared_ptr<const GuestMemory> memory;
  for (int round = 0; round < 1000; ++round) {
    GuestMemory::Builder builder;
    ASSERT_TRUE(builder.add({GuestAddr{0}, 4096, FrontendAddr{0}, 0}, file));
    memory = builder.build();
  }
  EXPECT_EQ(mapping_count(), before + 1);
  memory.reset();
  EXPECT_EQ(mapping_count(), before);
}

// ---- The file goes away under us ---------------------------------------------------------------

TEST(GuestMemory, LivesThroughATruncatedFile) {
  FakeGuestMemory guest({{.bytes = kMiB}, {.guest_address = 4 * kMiB, .bytes = kMiB}});
  FakeGuestMemory neighbour;
  const auto memory = guest.share();
  const auto span = memory->translate(GuestAddr{0}, kMiB);
  std::vector<uint8_t> bytes(kMiB, 1);
  const uint64_t trips_before = sigbus_trip_count();
  EXPECT_FALSE(memory->vanished());
  guest.truncate(0, 0);
  span->copy_out(0, bytes.data(), bytes.size());
  EXPECT_TRUE(memory->vanished());
  EXPECT_EQ(sigbus_trip_count(), trips_before + 1);
  EXPECT_EQ(bytes, std::vector<uint8_t>(kMiB, 0));
  // Once laid over, the range is quiet; other regions and guests are untouched.
  span->copy_out(5000, bytes.data(), 100);
  EXPECT_EQ(sigbus_trip_count(), trips_before + 1);
  EXPECT_FALSE(neighbour.share()->vanished());
  guest.write(4 * kMiB, std::vector<uint8_t>{9, 8, 7});
  memory->translate(GuestAddr{4 * kMiB}, 3)->copy_out(0, bytes.data(), 3);
  EXPECT_EQ(bytes[2], 7);
}

TEST(GuestMemory, LivesThroughAFileThatIsTruncatedWhileItIsReadAndWritten) {
  for (int round = 0; round < 50; ++round) {
    FakeGuestMemory guest({FakeRegion{.bytes = 64 * 4096}});
    const auto memory = guest.share();
    auto span = *memory->translate(GuestAddr{0}, 64 * 4096);
    std::thread truncator([&] { guest.truncate(0, (round % 8) * 4096); });
    std::vector<uint8_t> bytes(64 * 4096);
    // Bounded: the truncation comes within moments, and at least one pass runs after it.
    for (int pass = 0; pass < 100'000 && !memory->vanished(); ++pass) {
      if (pass % 2 == 0) span.copy_out(0, bytes.data(), bytes.size());
      if (pass % 2 == 1) span.copy_in(0, bytes.data(), bytes.size());
    }
    truncator.join();
    span.copy_out(0, bytes.data(), bytes.size());
    EXPECT_TRUE(memory->vanished());
  }
}

TEST(GuestMemory, TwoThreadsMayHitTheSameHoleAtOnce) {
  for (int round = 0; round < 50; ++round) {
    FakeGuestMemory guest({FakeRegion{.bytes = kMiB}});
    const auto memory = guest.share();
    guest.truncate(0, 0);
    const auto read = [&] {
      std::vector<uint8_t> bytes(kMiB);
      memory->translate(GuestAddr{0}, kMiB)->copy_out(0, bytes.data(), bytes.size());
    };
    std::thread other(read);
    read();
    other.join();
    EXPECT_TRUE(memory->vanished());
  }
}

TEST(GuestMemory, ANewMappingWhereOneVanishedIsNotTaintedByIt) {
  for (int round = 0; round < 10; ++round) {
    FakeGuestMemory guest({FakeRegion{.bytes = kMiB}});
    EXPECT_FALSE(guest.share()->vanished());
    guest.truncate(0, 4096);
    uint8_t byte = 1;
    guest.share()->translate(GuestAddr{8192}, 1)->copy_out(0, &byte, 1);
    EXPECT_EQ(byte, 0);
    EXPECT_TRUE(guest.share()->vanished());
  }
}

TEST(GuestMemoryDeathTest, ABusErrorOfOurOwnStillEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto read_a_hole_of_ours = [] {
    FakeGuestMemory guest;  // installs the handler
    const Fd file = memory_file(4096);
    auto* bytes = static_cast<volatile uint8_t*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0));
    if (::ftruncate(file.get(), 0) != 0) ::_exit(1);
    ::_exit(bytes[0]);
  };
  EXPECT_EXIT(read_a_hole_of_ours(), ::testing::KilledBySignal(SIGBUS), "");
}

// ---- Huge pages --------------------------------------------------------------------------------

// Reserves huge pages for as long as it lives, and puts the number back.
class HugepageReservation {
 public:
  explicit HugepageReservation(int pages) : before_(read()) {
    write(before_ + pages);
    granted_ = read() >= before_ + pages;
  }
  ~HugepageReservation() { write(before_); }
  bool granted() const { return granted_; }

 private:
  static constexpr const char* kPath = "/proc/sys/vm/nr_hugepages";
  static int read() {
    int pages = 0;
    std::ifstream(kPath) >> pages;
    return pages;
  }
  static void write(int pages) { std::ofstream(kPath) << pages << std::flush; }
  int before_;
  bool granted_ = false;
};

TEST(GuestMemory, TakesGuestMemoryOnHugePages) {
  const HugepageReservation reservation(4);
  if (!reservation.granted()) GTEST_SKIP() << "no huge pages can be reserved here";
  constexpr uint64_t kHugepage = 2 * kMiB;
  FakeGuestMemory guest({{.bytes = 2 * kHugepage, .is_hugetlb = true},
                         {.guest_address = 16 * kMiB,
                          .bytes = kHugepage - 0x5000,
                          .file_offset = 0x3000,
                          .is_hugetlb = true}});
  EXPECT_TRUE(guest.share()->translate(GuestAddr{0}, 2 * kHugepage));
  guest.write(16 * kMiB, std::vector<uint8_t>{1, 2, 3});
  uint8_t bytes[3] = {};
  guest.share()->translate(GuestAddr{16 * kMiB}, 3)->copy_out(0, bytes, 3);
  EXPECT_EQ(bytes[2], 3);
  // A truncated file is contained on huge pages, too.
  guest.truncate(0, 0);
  guest.share()->translate(GuestAddr{kHugepage + 5}, 3)->copy_out(0, bytes, 3);
  EXPECT_TRUE(guest.share()->vanished());
}

}  // namespace
}  // namespace sluice

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <set>
#include <string>

#include "base/drop_reason.h"
#include "base/fd.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/result.h"
#include "base/shared_word.h"

namespace sluice {
namespace {

bool is_open(int number) { return ::fcntl(number, F_GETFD) >= 0; }

TEST(Fd, IsClosedOnceByItsLastOwner) {
  int number = -1;
  {
    Fd first(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    number = first.get();
    Fd second(std::move(first));
    EXPECT_FALSE(first.valid());
    EXPECT_EQ(second.get(), number);
    Fd third;
    third = std::move(second);
    EXPECT_TRUE(is_open(number));
  }
  EXPECT_FALSE(is_open(number));
}

TEST(Fd, ClosesWhatItHadWhenItTakesAnother) {
  Fd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  Fd two(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const int first = one.get(), second = two.get();
  one = std::move(two);
  EXPECT_FALSE(is_open(first));
  EXPECT_EQ(one.get(), second);
  const int released = one.release();
  EXPECT_TRUE(is_open(released));
  EXPECT_FALSE(one.valid());
  ::close(released);
}

TEST(Result, IsAValueOrASentence) {
  const Result<int> value = 5;
  ASSERT_TRUE(value);
  EXPECT_EQ(*value, 5);
  const Result<int> failure = fail("no interface {}: create it first", "tap0");
  ASSERT_FALSE(failure);
  EXPECT_EQ(failure.error().text, "no interface tap0: create it first");
  EXPECT_FALSE(failure.error().is_usage);
  const Result<void> nothing;
  EXPECT_TRUE(nothing);
  const Result<void> usage = usage_failure("{} is no number", "x");
  ASSERT_FALSE(usage);
  EXPECT_TRUE(usage.error().is_usage);
  EXPECT_TRUE(Result<int>(fail(usage.error())).error().is_usage) << "passed on as it is";
  EXPECT_FALSE(errno_text(ENOENT).empty());
}

TEST(ResultDeathTest, LookingAtWhatIsNotThereAborts) {
  const Result<int> failure = fail("no");
  const Result<int> value = 1;
  EXPECT_DEATH((void)*failure, "internal error");
  EXPECT_DEATH((void)value.error(), "internal error");
}

TEST(RateLimit, AdmitsABurstAndThenNoMore) {
  RateLimit limit(5, 3'600'000'000'000);
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(limit.admit());
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(limit.admit());
}

TEST(RateLimit, EarnsOneAfterEachInterval) {
  RateLimit limit(1, 1);  // a nanosecond, which has passed by the next call
  for (int i = 0; i < 100; ++i) {
    ::usleep(1);
    EXPECT_TRUE(limit.admit());
  }
}

TEST(DropReason, HasANameAndASentenceOfItsOwnEach) {
  std::set<std::string_view> names, sentences;
  for (size_t i = 0; i < kDropReasonCount; ++i) {
    EXPECT_FALSE(kDropReasonSentences[i].empty());
    names.insert(kDropReasonNames[i]);
    sentences.insert(kDropReasonSentences[i]);
  }
  EXPECT_EQ(names.size(), kDropReasonCount);
  EXPECT_EQ(sentences.size(), kDropReasonCount);
}

TEST(SharedWord, IsExactlyTheWord) {
  uint16_t memory[2] = {0x1234, 0x5678};
  auto* words = reinterpret_cast<SharedWord<uint16_t>*>(memory);
  EXPECT_EQ(words[1].load_acquire(), 0x5678);
  words[0].store_release(1);
  words[1].store_relaxed(2);
  EXPECT_EQ(words[0].load_relaxed(), 1);
  EXPECT_EQ(words[1].load_relaxed(), 2);
  Counter counter;
  counter.add(3);
  counter.add(4);
  EXPECT_EQ(counter.get(), 7u);
}

}  // namespace
}  // namespace sluice

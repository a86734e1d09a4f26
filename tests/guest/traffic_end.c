// One end of a traffic test; the same static program runs in guests and on the host.
// tests/lib/traffic.py builds and drives it. It checks what ready-made tools do not: every datagram
// is numbered and its bytes are known, so that lost, repeated, late and damaged ones are told
// apart.
//
//   traffic_end udp-send ADDRESS PORT COUNT BYTES PER_SECOND   COUNT 0: until SIGTERM
//   traffic_end udp-recv PORT COUNT QUIET_MS                   until COUNT, SIGTERM, or silence
//   traffic_end generate BYTES SEED                            known bytes to standard output
//   traffic_end tcp-send ADDRESS PORT                          standard input to one connection
//   traffic_end tcp-recv PORT                                  one connection to standard output
//
// A receiver says `ready` when it can be sent to (tcp-recv on standard error).
// The UDP ends print a line of `name=number` pairs last. Exit status 0 says that the work was done,
// not that nothing was lost.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  kDatagramBytesMin = 16,
  kDatagramBytesMax = 65507,
  kDatagramsMax = 1 << 24,  // 16 Mi numbers: hours at the rates of these tests
  kSocketBufferBytes = 8 << 20,
  kCopyBytes = 64 << 10,
  kReceiveBatch = 64,
};
static const uint32_t kMagic = 0x736c7563;

static volatile sig_atomic_t stop_asked;

static void on_stop(int number) {
  (void)number;
  stop_asked = 1;
}

static void fail(const char* what) {
  perror(what);
  exit(1);
}

static uint64_t now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

// IPv4 addresses are written as mapped ones: one kind of socket serves both families.
static struct sockaddr_in6 parse_address(const char* text, const char* port) {
  struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(port))};
  char mapped[80];
  snprintf(mapped, sizeof mapped, "%s%s", strchr(text, ':') ? "" : "::ffff:", text);
  if (inet_pton(AF_INET6, mapped, &address.sin6_addr) != 1) {
    fprintf(stderr, "traffic_end: %s is no address\n", text);
    exit(2);
  }
  return address;
}

static int open_socket(int type) {
  int fd = socket(AF_INET6, type | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  const int off = 0;
  const int on = 1;
  const int bytes = kSocketBufferBytes;
  setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (type == SOCK_DGRAM) {
    // A slow receiver must not look like a lossy path. The send buffer stays small: it is what
    // holds a sender back before its interface's queue overflows.
    setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof bytes);
  }
  return fd;
}

static int open_bound(int type, const char* port) {
  int fd = open_socket(type);
  const struct sockaddr_in6 address = parse_address("::", port);
  if (bind(fd, (const struct sockaddr*)&address, sizeof address) != 0) fail("bind");
  return fd;
}

// The bytes after the number depend on it, so that a mixed-up or cut datagram shows.
static void fill_datagram(uint8_t* data, size_t bytes, uint32_t number) {
  const uint32_t head[3] = {htonl(kMagic), htonl(number), htonl((uint32_t)bytes)};
  memcpy(data, head, sizeof head);
  for (size_t i = sizeof head; i < bytes; ++i) data[i] = (uint8_t)(number * 31u + i * 7u);
}

static int is_intact(const uint8_t* data, size_t bytes, uint32_t* number) {
  static uint8_t expected[kDatagramBytesMax];
  uint32_t head[3];
  if (bytes < kDatagramBytesMin) return 0;
  memcpy(head, data, sizeof head);
  *number = ntohl(head[1]);
  fill_datagram(expected, bytes, *number);
  return memcmp(data, expected, bytes) == 0;
}

static void wait_until_ns(uint64_t deadline_ns) {
  const struct timespec time = {.tv_sec = (time_t)(deadline_ns / 1000000000u),
                                .tv_nsec = (long)(deadline_ns % 1000000000u)};
  while (!stop_asked && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR) {
  }
}

static int udp_send(char** args) {
  static uint8_t data[kDatagramBytesMax];
  int fd = open_socket(SOCK_DGRAM);
  const struct sockaddr_in6 address = parse_address(args[0], args[1]);
  const uint32_t count = (uint32_t)atoi(args[2]);
  const size_t bytes = (size_t)atoi(args[3]);
  const uint64_t gap_ns = 1000000000u / (uint64_t)atoi(args[4]);
  if (bytes < kDatagramBytesMin || bytes > kDatagramBytesMax) return 2;
  const uint64_t begin_ns = now_ns();
  uint32_t sent = 0;
  uint64_t late_ns = 0;
  uint32_t refused = 0;
  while (!stop_asked && (count == 0 || sent < count) && sent < kDatagramsMax) {
    // A sender that was not scheduled for long goes on at its rate and does not make up for it: a
    // burst of everything that was missed would be another test.
    const uint64_t due_ns = begin_ns + late_ns + sent * gap_ns;
    const uint64_t now = now_ns();
    if (now < due_ns) {
      wait_until_ns(due_ns);
    } else if (now - due_ns > 10 * gap_ns) {
      late_ns += now - due_ns;
    }
    fill_datagram(data, bytes, sent);
    if (sendto(fd, data, bytes, 0, (const struct sockaddr*)&address, sizeof address) < 0) {
      // A full queue or a missing listener; neither is the end. The number stays and goes again.
      if (++refused > kDatagramsMax) return 1;
      late_ns += gap_ns;
      wait_until_ns(now_ns() + gap_ns);
      continue;
    }
    ++sent;
  }
  printf("sent=%u refused=%u ms=%llu\n", sent, refused,
         (unsigned long long)((now_ns() - begin_ns) / 1000000u));
  return 0;
}

struct tally {
  uint32_t received, repeated, late, damaged;
  uint32_t next;  // one above the highest number seen
  uint8_t seen[kDatagramsMax];
};

static void count_datagram(struct tally* tally, const uint8_t* data, size_t bytes) {
  uint32_t number = 0;
  if (!is_intact(data, bytes, &number) || number >= kDatagramsMax) {
    ++tally->damaged;
  } else if (tally->seen[number]) {
    ++tally->repeated;
  } else {
    tally->seen[number] = 1;
    ++tally->received;
    tally->late += number < tally->next;
    if (number >= tally->next) tally->next = number + 1;
  }
}

static int udp_receive(char** args) {
  static uint8_t data[kReceiveBatch][kDatagramBytesMax];
  static struct tally tally;
  int fd = open_bound(SOCK_DGRAM, args[0]);
  const uint32_t count = (uint32_t)atoi(args[1]);
  const int quiet_ms = atoi(args[2]);
  struct iovec parts[kReceiveBatch];
  struct mmsghdr messages[kReceiveBatch];
  memset(messages, 0, sizeof messages);
  for (int i = 0; i < kReceiveBatch; ++i) {
    parts[i] = (struct iovec){.iov_base = data[i], .iov_len = kDatagramBytesMax};
    messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
  }
  printf("ready\n");
  fflush(stdout);
  while (!stop_asked && (count == 0 || tally.received < count)) {
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    const int found = poll(&ready, 1, quiet_ms);
    if (found == 0) break;
    if (found < 0) continue;
    // In batches: system calls are dear in User-Mode Linux, and a receiver that falls behind on a
    // busy machine must be able to catch up.
    const int got = recvmmsg(fd, messages, kReceiveBatch, MSG_DONTWAIT, NULL);
    for (int i = 0; i < got; ++i) count_datagram(&tally, data[i], messages[i].msg_len);
  }
  uint32_t lost = 0;
  while (lost < tally.next && tally.seen[lost]) ++lost;
  printf("received=%u highest=%u repeated=%u late=%u damaged=%u first_lost=%d\n", tally.received,
         tally.next, tally.repeated, tally.late, tally.damaged,
         lost == tally.next ? -1 : (int)lost);
  return 0;
}

static int generate(char** args) {
  uint64_t left = strtoull(args[0], NULL, 10);
  uint64_t state = 0x9e3779b97f4a7c15u ^ strtoull(args[1], NULL, 10);
  static uint64_t block[kCopyBytes / 8];
  while (left > 0) {
    for (size_t i = 0; i < kCopyBytes / 8; ++i) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      block[i] = state;
    }
    const size_t bytes = left < kCopyBytes ? (size_t)left : kCopyBytes;
    if (fwrite(block, 1, bytes, stdout) != bytes) fail("write");
    left -= bytes;
  }
  return fflush(stdout) == 0 ? 0 : 1;
}

static void copy_all(int from, int to) {
  static uint8_t data[kCopyBytes];
  for (;;) {
    const ssize_t got = read(from, data, sizeof data);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("read");
    if (got == 0) return;
    for (ssize_t put = 0; put < got;) {
      const ssize_t done = write(to, data + put, (size_t)(got - put));
      if (done < 0 && errno != EINTR) fail("write");
      if (done > 0) put += done;
    }
  }
}

static int tcp_send(char** args) {
  int fd = open_socket(SOCK_STREAM);
  const struct sockaddr_in6 address = parse_address(args[0], args[1]);
  if (connect(fd, (const struct sockaddr*)&address, sizeof address) != 0) fail("connect");
  copy_all(0, fd);
  if (shutdown(fd, SHUT_WR) != 0) fail("shutdown");
  // The other end closes when it has all of it.
  char byte;
  return read(fd, &byte, 1) == 0 ? 0 : 1;
}

static int tcp_receive(char** args) {
  int listener = open_bound(SOCK_STREAM, args[0]);
  if (listen(listener, 1) != 0) fail("listen");
  fprintf(stderr, "ready\n");
  int fd = accept(listener, NULL, NULL);
  if (fd < 0) fail("accept");
  copy_all(fd, 1);
  return 0;
}

int main(int count, char** args) {
  static const struct {
    const char* name;
    int arguments;
    int (*run)(char**);
  } kModes[] = {{"udp-send", 5, udp_send},
                {"udp-recv", 3, udp_receive},
                {"generate", 2, generate},
                {"tcp-send", 2, tcp_send},
                {"tcp-recv", 1, tcp_receive}};
  const struct sigaction action = {.sa_handler = on_stop};
  sigaction(SIGTERM, &action, NULL);
  for (size_t i = 0; i < sizeof kModes / sizeof *kModes; ++i) {
    if (count >= 2 && strcmp(args[1], kModes[i].name) == 0 && count - 2 == kModes[i].arguments) {
      return kModes[i].run(args + 2);
    }
  }
  fprintf(stderr, "traffic_end: see the first lines of tests/guest/traffic_end.c\n");
  return 2;
}

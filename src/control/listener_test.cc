#include "control/listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class Listener : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/sluice_listener_XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  static std::string refusal(const std::string& path, const std::string& group = "") {
    const Result<UnixListener> listener = listen_unix(path, 0660, group);
    return listener ? "(it listens)" : listener.error().text;
  }
  // A socket file whose owner died.
  static void leave_stale_socket(const std::string& path) {
    const Fd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    std::strncpy(name.sun_path, path.c_str(), sizeof name.sun_path - 1);
    ASSERT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&name), sizeof name), 0);
  }

  std::string folder_;
};

TEST_F(Listener, TakesAFreePathWithItsModeAndRemovesItAtTheEnd) {
  const mode_t umask_before = umask(0077);
  {
    const Result<UnixListener> listener = listen_unix(path("a.sock"), 0660, "");
    ASSERT_TRUE(listener);
    struct stat file {};
    ASSERT_EQ(stat(path("a.sock").c_str(), &file), 0);
    EXPECT_EQ(file.st_mode & 0777, 0660u);
    EXPECT_TRUE(connect_unix(path("a.sock")));
  }
  umask(umask_before);
  EXPECT_FALSE(fs::exists(path("a.sock")));
}

TEST_F(Listener, LeavesAPathThatSomebodyListensOn) {
  const Result<UnixListener> first = listen_unix(path("a.sock"), 0660, "");
  ASSERT_TRUE(first);
  EXPECT_THAT(refusal(path("a.sock")),
              AllOf(HasSubstr(path("a.sock")), HasSubstr("in use by process"),
                    HasSubstr(fmt::format("{}", getpid()))));
  EXPECT_TRUE(connect_unix(path("a.sock")));
}

TEST_F(Listener, LeavesAPathWhoseListenerIsTooBusyToAccept) {
  const Result<UnixListener> first = listen_unix(path("a.sock"), 0660, "");
  ASSERT_TRUE(first);
  std::vector<Fd> waiting;
  for (int i = 0; i < 100; ++i) {
    Result<Fd> client = connect_unix(path("a.sock"));
    if (!client) {
      EXPECT_THAT(client.error().text, HasSubstr("waiting"));
      break;
    }
    waiting.push_back(std::move(*client));
  }
  ASSERT_LT(waiting.size(), 100u);
  EXPECT_THAT(refusal(path("a.sock")), HasSubstr("in use"));
}

TEST_F(Listener, ReplacesAStaleSocket) {
  leave_stale_socket(path("a.sock"));
  EXPECT_THAT(connect_unix(path("a.sock")).error().text, HasSubstr("nobody listens"));
  const Result<UnixListener> listener = listen_unix(path("a.sock"), 0660, "");
  ASSERT_TRUE(listener);
  EXPECT_TRUE(connect_unix(path("a.sock")));
}

TEST_F(Listener, NeverDeletesWhatIsNoSocket) {
  std::ofstream(path("file")) << "precious";
  fs::create_directory(path("folder"));
  leave_stale_socket(path("stale.sock"));
  fs::create_symlink(path("stale.sock"), path("link"));
  for (const char* name : {"file", "folder", "link"}) {
    SCOPED_TRACE(name);
    EXPECT_THAT(refusal(path(name)), AllOf(HasSubstr(path(name)), HasSubstr("no socket")));
    EXPECT_TRUE(fs::exists(path(name)));
  }
}

TEST_F(Listener, SaysWhichFolderIsMissing) {
  EXPECT_THAT(refusal(path("none/a.sock")), AllOf(HasSubstr("no folder"), HasSubstr("mkdir -p")));
  std::ofstream(path("file")) << "x";
  EXPECT_THAT(refusal(path("file/a.sock")), HasSubstr("is no folder"));
}

TEST_F(Listener, SaysWhichGroupIsMissingAndCreatesNothing) {
  EXPECT_THAT(refusal(path("a.sock"), "no_such_group_here"), HasSubstr("no_such_group_here"));
  EXPECT_FALSE(fs::exists(path("a.sock")));
}

TEST_F(Listener, SaysThatAPathIsTooLong) {
  EXPECT_THAT(refusal("/" + std::string(107, 'x')), HasSubstr("107"));
  EXPECT_THAT(connect_unix("").error().text, HasSubstr("1 to 107"));
}

TEST_F(Listener, LeavesAFileThatAnotherPutInItsPlace) {
  {
    const Result<UnixListener> first = listen_unix(path("a.sock"), 0660, "");
    ASSERT_TRUE(first);
    fs::remove(path("a.sock"));
    leave_stale_socket(path("a.sock"));
  }
  EXPECT_TRUE(fs::exists(path("a.sock")));
}

TEST_F(Listener, HandsOverEachConnection) {
  Result<std::unique_ptr<EventLoop>> loop = EventLoop::create();
  ASSERT_TRUE(loop);
  Result<UnixListener> listener = listen_unix(path("a.sock"), 0660, "");
  ASSERT_TRUE(listener);
  std::vector<Fd> accepted;
  Acceptor acceptor(**loop, std::move(*listener),
                    [&](Fd socket) { accepted.push_back(std::move(socket)); });
  ASSERT_TRUE(acceptor.start());
  std::vector<Fd> clients;
  for (int i = 0; i < 12; ++i) clients.push_back(std::move(*connect_unix(path("a.sock"))));
  for (int i = 0; i < 4; ++i) (*loop)->run_once(0);
  EXPECT_EQ(accepted.size(), 12u);
}

}  // namespace
}  // namespace sluice

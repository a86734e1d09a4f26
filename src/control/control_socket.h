// ControlSocket: the daemon's side of the Unix socket on which `sluice stats` and its like ask.
//
// The protocol: one JSON object a line, one line of JSON as the answer, in order.
//
//   {"command":"stats"}   the document of `sluice stats --json`
//   {"command":"ports"}   the document of `sluice ports --json`
//   {"command":"xdp_…"}   see xdp_manager.h; descriptors come with the bytes of the request
//   anything else         {"error":"a sentence"}
//
// Clients are not trusted with our time or memory: at most 16 at once, a request of at most 64 KiB,
// one answer held for each, and a client that neither completes a request nor reads its answer for
// 10 s is closed. Nothing here ever waits for one.
//
//   auto control = ControlSocket::open(loop, options.control_path, stats_source);
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "control/event_loop.h"
#include "control/listener.h"

namespace sluice {

// What the daemon has to tell. Called in the control thread.
class StatsSource {
 public:
  virtual ~StatsSource() = default;
  virtual nlohmann::json stats() const = 0;
  virtual nlohmann::json ports() const = 0;
  // Any other command; nothing: there is no such. Descriptors that are left in `fds` are closed.
  virtual std::optional<nlohmann::json> command(const std::string& /*name*/,
                                                const nlohmann::json& /*request*/,
                                                std::vector<Fd>& /*fds*/) {
    return std::nullopt;
  }
};

inline constexpr size_t kControlClientsMax = 16;
inline constexpr size_t kControlRequestBytesMax = 64 * 1024;
inline constexpr size_t kControlFdsMax = 160;  // of one request
inline constexpr uint64_t kControlIdleNs = 10'000'000'000;

class ControlSocket {
 public:
  // `idle_ns`: after how long an idle client is closed; for tests.
  static Result<std::unique_ptr<ControlSocket>> open(EventLoop& loop, const std::string& path,
                                                     StatsSource& source,
                                                     uint64_t idle_ns = kControlIdleNs);
  ~ControlSocket();
  ControlSocket(const ControlSocket&) = delete;
  ControlSocket& operator=(const ControlSocket&) = delete;

  size_t client_count() const { return clients_.size(); }

 private:
  struct Client {
    Fd socket;
    std::string request;  // bytes of requests that have not been answered
    std::vector<Fd> fds;  // that came with them
    std::string answer;   // what the socket has not taken yet
    EventLoop::TimerId idle_timer = 0;
  };

  ControlSocket(EventLoop& loop, StatsSource& source, uint64_t idle_ns);
  void on_accepted(Fd socket);
  void on_event(int fd, uint32_t events);
  void close_client(int fd);
  void restart_idle_timer(int fd, Client& client);
  // Each false: the client is to be closed.
  bool take_in(Client& client);
  bool send_out(Client& client);
  bool answer_requests(int fd, Client& client);
  std::string answer_to(std::string_view request, std::vector<Fd>& fds);

  EventLoop& loop_;
  StatsSource& source_;
  const uint64_t idle_ns_;
  std::unique_ptr<Acceptor> acceptor_;
  std::unordered_map<int, Client> clients_;  // by descriptor
};

}  // namespace sluice

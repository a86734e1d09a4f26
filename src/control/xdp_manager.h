// XdpManager: which port runs which XDP program, and the control socket's commands about it.
//
//   {"command":"xdp_attach","port":"vm0","replace":false,"object":{…}}    see xdp_wire.h
//   {"command":"xdp_detach","port":"vm0"}
//   {"command":"xdp_list"}                               {"attached":[{"port","program","tag",…}]}
//   {"command":"xdp_map_dump","port":"vm0","map":"m"}    {"map":{…},"entries":[{"key","values"}]}
//   {"command":"xdp_map_show", …}                        the same without the entries
//   {"command":"xdp_map_update","port","map","key","value","flags"}    bytes in hexadecimal
//   {"command":"xdp_map_delete","port","map","key"}
//
// An attach is all or nothing: the program that runs goes on until its successor is checked,
// compiled and has its maps, and then gives way between two breaths of each worker.
#pragma once

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "control/xdp_attachment.h"
#include "engine/engine.h"

namespace sluice {

enum class AttachKind : uint8_t {
  at_start,  // nothing runs yet
  fresh,     // refused where a program is attached
  replace,   // refused where none is
};

class XdpManager {
 public:
  // `may_be_unverified`: --xdp-unverified=interpret.
  XdpManager(Engine& engine, bool may_be_unverified)
      : engine_(engine), may_be_unverified_(may_be_unverified) {}
  ~XdpManager();
  XdpManager(const XdpManager&) = delete;
  XdpManager& operator=(const XdpManager&) = delete;

  Result<void> attach(const std::string& port, XdpObject object, AttachKind kind);
  Result<void> detach(const std::string& port);
  nlohmann::json list() const;

  // A command of the control socket; nothing: it is not about XDP.
  std::optional<nlohmann::json> command(const std::string& name, const nlohmann::json& request,
                                        std::vector<Fd>& fds);

 private:
  Result<nlohmann::json> attach_from_wire(const nlohmann::json& request, std::vector<Fd>& fds);
  Result<XdpMap*> map_of(const nlohmann::json& request) const;
  nlohmann::json describe(const std::string& port, const XdpAttachment& attachment) const;

  Engine& engine_;
  const bool may_be_unverified_;
  std::map<std::string, std::unique_ptr<XdpAttachment>> attached_;  // by the port's name
};

}  // namespace sluice

#include "control/xdp_manager.h"

#include "base/log.h"
#include "control/option_schema.h"
#include "control/xdp_map_json.h"
#include "control/xdp_wire.h"

namespace sluice {
namespace {

using nlohmann::json;

std::string text_at(const json& request, const char* key) {
  const auto found = request.find(key);
  return found != request.end() && found->is_string() ? found->get<std::string>() : "";
}

json answer_of(const Result<json>& result) {
  return result ? *result : json{{"error", result.error().text}};
}

Result<json> done(const Result<void>& result) {
  if (!result) return result.error();
  return json{{"done", true}};
}

}  // namespace

// Workers have stopped, or stop running the programs before these go.
XdpManager::~XdpManager() {
  for (const auto& [name, attachment] : attached_)
    if (Port* port = engine_.find(name)) engine_.set_program(*port, nullptr);
}

Result<void> XdpManager::attach(const std::string& port_name, XdpObject object, AttachKind kind) {
  Port* port = engine_.find(port_name);
  if (port == nullptr) return fail("there is no port {}", printable(port_name));
  const auto running = attached_.find(port_name);
  if (kind == AttachKind::replace && running == attached_.end())
    return fail("{} runs no program: use attach", port_name);
  if (kind != AttachKind::replace && running != attached_.end())
    return fail("{} runs {} already: use replace, or detach it first", port_name,
                running->second->name());
  auto made = XdpAttachment::create(std::move(object), {.worker_count = engine_.worker_count(),
                                                        .may_be_unverified = may_be_unverified_});
  if (!made) return made.error();
  if (Result<void> ready = engine_.prepare_for_program(*port); !ready)
    return fail("{}: {}", port_name, ready.error().text);
  engine_.set_program(*port, &(*made)->program());
  // Every worker has passed a breath: nobody runs the predecessor any more.
  attached_[port_name] = std::move(*made);
  const XdpAttachment& now = *attached_[port_name];
  log_info("{}: XDP program {} ({}) attached, tag {}, {}", port_name, now.name(), now.path(),
           now.tag().empty() ? "none" : now.tag(), now.engine());
  return {};
}

Result<void> XdpManager::detach(const std::string& port_name) {
  const auto found = attached_.find(port_name);
  if (found == attached_.end()) return fail("{} runs no program", printable(port_name));
  Port* port = engine_.find(port_name);
  if (port != nullptr) engine_.set_program(*port, nullptr);
  log_info("{}: XDP program {} detached", port_name, found->second->name());
  attached_.erase(found);
  return {};
}

json XdpManager::describe(const std::string& port, const XdpAttachment& attachment) const {
  json maps = json::array();
  for (size_t i = 0; i < attachment.map_count(); ++i) {
    json map = map_json(attachment.map(i));
    map["id"] = attachment.object_map(i).kernel_id;
    maps.push_back(std::move(map));
  }
  return {{"port", port},
          {"program", attachment.name()},
          {"object", attachment.path()},
          {"tag", attachment.tag()},
          {"engine", attachment.engine()},
          {"instructions", attachment.instruction_count()},
          {"kernel_us", attachment.kernel_ns() / 1000},
          {"own_us", attachment.own_ns() / 1000},
          {"maps", std::move(maps)}};
}

json XdpManager::list() const {
  json attached = json::array();
  for (const auto& [port, attachment] : attached_) attached.push_back(describe(port, *attachment));
  return {{"attached", std::move(attached)}};
}

Result<json> XdpManager::attach_from_wire(const json& request, std::vector<Fd>& fds) {
  const auto description = request.find("object");
  if (description == request.end() || !description->is_object())
    return fail("an attach has an \"object\"");
  Result<XdpObject> object = object_from_wire(*description, fds);
  if (!object) return object.error();
  const auto replace = request.find("replace");
  const bool replaces = replace != request.end() && replace->is_boolean() && replace->get<bool>();
  const std::string port = text_at(request, "port");
  const Result<void> attached =
      attach(port, std::move(*object), replaces ? AttachKind::replace : AttachKind::fresh);
  if (!attached) return attached.error();
  return describe(port, *attached_.at(port));
}

Result<XdpMap*> XdpManager::map_of(const json& request) const {
  const std::string port = text_at(request, "port"), name = text_at(request, "map");
  const auto found = attached_.find(port);
  if (found == attached_.end()) return fail("{} runs no program", printable(port));
  XdpMap* map = found->second->find_map(name);
  if (map != nullptr) return map;
  std::string names;
  for (size_t i = 0; i < found->second->map_count(); ++i)
    names += (i == 0 ? "" : ", ") + found->second->map(i).shape().name;
  return fail("the program has no map {}{}{}", printable(name), names.empty() ? "" : ": it has ",
              names);
}

std::optional<json> XdpManager::command(const std::string& name, const json& request,
                                        std::vector<Fd>& fds) {
  if (name == "xdp_list") return list();
  if (name == "xdp_attach") return answer_of(attach_from_wire(request, fds));
  if (name == "xdp_detach") return answer_of(done(detach(text_at(request, "port"))));
  if (!name.starts_with("xdp_map_")) return std::nullopt;
  const Result<XdpMap*> map = map_of(request);
  if (!map) return json{{"error", map.error().text}};
  if (name == "xdp_map_show") return json{{"map", map_json(**map)}};
  if (name == "xdp_map_dump") return dump_json(**map);
  if (name == "xdp_map_update") return answer_of(done(update_from_json(**map, request)));
  if (name == "xdp_map_delete") return answer_of(done(delete_from_json(**map, request)));
  return std::nullopt;
}

}  // namespace sluice

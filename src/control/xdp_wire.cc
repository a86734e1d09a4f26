#include "control/xdp_wire.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "control/option_schema.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr size_t kProgramsMax = 64;
constexpr size_t kMapsMax = 64;
constexpr size_t kSlotsMax = 4096;
constexpr uint64_t kInstructionsMax = 1'000'000;  // of all programs

json shape_to_json(const MapShape& shape) {
  return {{"name", shape.name},
          {"type", static_cast<uint32_t>(shape.type)},
          {"key_size", shape.key_size},
          {"value_size", shape.value_size},
          {"max_entries", shape.max_entries},
          {"flags", shape.flags},
          {"extra", shape.extra}};
}

// The number at `key`, or nothing where there is none below `bound`.
std::optional<uint64_t> number_at(const json& object, const char* key, uint64_t bound) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto value = found->get<uint64_t>();
  if (value > bound) return std::nullopt;
  return value;
}

// Names go into the log and into answers: fit for one line.
std::string text_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string()
             ? printable(found->get_ref<const std::string&>())
             : "";
}

std::optional<MapShape> shape_from_json(const json& object) {
  if (!object.is_object()) return std::nullopt;
  const auto type = number_at(object, "type", 255);
  const auto key_size = number_at(object, "key_size", UINT32_MAX);
  const auto value_size = number_at(object, "value_size", UINT32_MAX);
  const auto max_entries = number_at(object, "max_entries", UINT32_MAX);
  const auto flags = number_at(object, "flags", UINT32_MAX);
  const auto extra = number_at(object, "extra", UINT64_MAX);
  if (!type || !key_size || !value_size || !max_entries || !flags || !extra) return std::nullopt;
  return MapShape{.type = static_cast<bpf_map_type>(*type),
                  .key_size = static_cast<uint32_t>(*key_size),
                  .value_size = static_cast<uint32_t>(*value_size),
                  .max_entries = static_cast<uint32_t>(*max_entries),
                  .flags = static_cast<uint32_t>(*flags),
                  .extra = *extra,
                  .name = text_at(object, "name")};
}

// An array of at most `max` elements.
const json* list_at(const json& object, const char* key, size_t max) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_array() || found->size() > max) return nullptr;
  return &*found;
}

// Read once, so that the sender cannot change what has been checked.
Result<std::vector<Instruction>> read_instructions(int fd, uint64_t count) {
  std::vector<Instruction> all(count);
  const size_t bytes = count * sizeof(Instruction);
  for (size_t at = 0; at < bytes;) {
    const ssize_t got =
        ::pread(fd, reinterpret_cast<char*>(all.data()) + at, bytes - at, static_cast<off_t>(at));
    if (got <= 0) return fail("the instructions are fewer than announced");
    at += static_cast<size_t>(got);
  }
  return all;
}

Result<void> take_programs(const json& list, std::vector<Fd>& fds, XdpObject& object) {
  uint64_t count = 0;
  for (const json& entry : list) {
    const auto instructions = number_at(entry, "instructions", kInstructionsMax);
    if (!instructions) return fail("a program without a number of instructions");
    count += *instructions;
  }
  if (count > kInstructionsMax) return fail("more than {} instructions", kInstructionsMax);
  // Only a memfd answers this: no other file can keep us waiting.
  if (::fcntl(fds[0].get(), F_GET_SEALS) < 0)
    return fail("the instructions must come in a file of memory");
  const auto all = read_instructions(fds[0].get(), count);
  if (!all) return fail(all.error());
  auto next = all->begin();
  for (size_t i = 0; i < list.size(); ++i) {
    const auto instructions = static_cast<ptrdiff_t>(list[i]["instructions"].get<uint64_t>());
    object.programs.push_back(
        {text_at(list[i], "name"), {next, next + instructions}, std::move(fds[1 + i])});
    next += instructions;
  }
  return {};
}

Result<void> take_slots(const json& list, XdpObject& object) {
  for (const json& entry : list) {
    const auto map = number_at(entry, "map", kMapsMax);
    const auto index = number_at(entry, "index", UINT32_MAX);
    const auto target = number_at(entry, "target", kMapsMax);
    if (!map || !index || !target) return fail("a slot that is none");
    object.slots.push_back({static_cast<uint32_t>(*map), static_cast<uint32_t>(*index),
                            static_cast<uint32_t>(*target)});
  }
  return {};
}

}  // namespace

Result<WiredObject> object_to_wire(const XdpObject& object) {
  WiredObject wired;
  wired.instructions = Fd(::memfd_create("sluice-instructions", MFD_CLOEXEC));
  if (!wired.instructions) return fail("no memory file: {}", errno_text(errno));
  wired.fds.push_back(wired.instructions.get());
  json programs = json::array(), maps = json::array(), slots = json::array();
  for (const ObjectProgram& program : object.programs) {
    const size_t bytes = program.instructions.size() * sizeof(Instruction);
    if (::write(wired.instructions.get(), program.instructions.data(), bytes) !=
        static_cast<ssize_t>(bytes))
      return fail("no memory file: {}", errno_text(errno));
    programs.push_back({{"name", program.name}, {"instructions", program.instructions.size()}});
    wired.fds.push_back(program.fd.get());
  }
  for (const ObjectMap& map : object.maps) {
    json entry = shape_to_json(map.shape);
    if (map.inner) entry["inner"] = shape_to_json(*map.inner);
    maps.push_back(std::move(entry));
    wired.fds.push_back(map.fd.get());
  }
  for (const ObjectSlot& slot : object.slots)
    slots.push_back({{"map", slot.map}, {"index", slot.index}, {"target", slot.target}});
  wired.description = {{"path", object.path},
                       {"programs", std::move(programs)},
                       {"maps", std::move(maps)},
                       {"slots", std::move(slots)},
                       {"kernel_ns", object.kernel_ns}};
  return wired;
}

Result<XdpObject> object_from_wire(const json& description, std::vector<Fd>& fds) {
  XdpObject object;
  object.path = text_at(description, "path");
  object.kernel_ns = number_at(description, "kernel_ns", UINT64_MAX).value_or(0);
  const json* programs = list_at(description, "programs", kProgramsMax);
  const json* maps = list_at(description, "maps", kMapsMax);
  const json* slots = list_at(description, "slots", kSlotsMax);
  if (programs == nullptr || programs->empty() || maps == nullptr || slots == nullptr)
    return fail(
        "a program comes with 1 to {} \"programs\", up to {} \"maps\" and up to {} "
        "\"slots\"",
        kProgramsMax, kMapsMax, kSlotsMax);
  if (fds.size() != 1 + programs->size() + maps->size())
    return fail("{} descriptors came with {} programs and {} maps", fds.size(), programs->size(),
                maps->size());
  if (Result<void> taken = take_programs(*programs, fds, object); !taken) return taken.error();
  for (size_t i = 0; i < maps->size(); ++i) {
    const auto shape = shape_from_json((*maps)[i]);
    if (!shape) return fail("map {} is described wrongly", i);
    ObjectMap map{.shape = *shape,
                  .inner = {},
                  .fd = std::move(fds[1 + programs->size() + i]),
                  .initial = {}};
    if ((*maps)[i].contains("inner")) map.inner = shape_from_json((*maps)[i]["inner"]);
    object.maps.push_back(std::move(map));
  }
  if (Result<void> taken = take_slots(*slots, object); !taken) return taken.error();
  return object;
}

}  // namespace sluice

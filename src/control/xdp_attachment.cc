#include "control/xdp_attachment.h"

#include <bpf/bpf.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"
#include "base/limits.h"
#include "xdp/map_array.h"

namespace sluice {
namespace {

constexpr uint32_t kUsedMapsMax = 64;  // of the kernel's

// What a map of ours takes, about: keys, values and what links them. Everything is there from the
// start, so that no program ever waits for memory.
uint64_t bytes_of(const MapShape& shape, uint32_t worker_count) {
  constexpr uint64_t kLinkBytes = 32;
  const uint64_t key = (uint64_t{shape.key_size} + 7) / 8 * 8;
  const uint64_t value = (uint64_t{shape.value_size} + 7) / 8 * 8;
  if (shape.type == BPF_MAP_TYPE_RINGBUF) return shape.max_entries;
  const bool is_per_cpu = shape.type == BPF_MAP_TYPE_PERCPU_ARRAY ||
                          shape.type == BPF_MAP_TYPE_PERCPU_HASH ||
                          shape.type == BPF_MAP_TYPE_LRU_PERCPU_HASH;
  return shape.max_entries * (key + value * (is_per_cpu ? worker_count : 1) + kLinkBytes);
}

}  // namespace

Result<std::unique_ptr<XdpAttachment>> XdpAttachment::create(XdpObject object,
                                                             const AttachmentOptions& options) {
  if (object.programs.empty()) return fail("{}: there is no program in it", object.path);
  const std::string path = object.path;
  const uint64_t begin_ns = monotonic_ns();
  std::unique_ptr<XdpAttachment> made(new XdpAttachment(std::move(object)));
  if (!made->is_verified() && !options.may_be_unverified)
    return fail(
        "{}: the kernel has not verified it, and the daemon was started without "
        "--xdp-unverified=interpret",
        path);
  if (Result<void> done = made->make_maps(options); !done)
    return fail("{}: {}", path, done.error().text);
  if (Result<void> done = made->make_programs(); !done)
    return fail("{}: {}", path, done.error().text);
  if (Result<void> done = made->fill_slots(); !done) return fail("{}: {}", path, done.error().text);
  made->own_ns_ = monotonic_ns() - begin_ns;
  return made;
}

// The kernel's word on a map counts, not the client's: the verifier judged with it.
Result<void> XdpAttachment::believe_map(ObjectMap& map) const {
  bpf_map_info info{};
  uint32_t bytes = sizeof info;
  if (bpf_obj_get_info_by_fd(map.fd.get(), &info, &bytes) != 0)
    return fail("map {}: the kernel says nothing about it: {}", map.shape.name, errno_text(errno));
  map.kernel_id = info.id;
  map.shape.type = static_cast<bpf_map_type>(info.type);
  map.shape.key_size = info.key_size;
  map.shape.value_size = info.value_size;
  map.shape.max_entries = info.max_entries;
  map.shape.flags = info.map_flags;
  map.shape.extra = info.map_extra;
  return {};
}

Result<void> XdpAttachment::make_maps(const AttachmentOptions& options) {
  uint64_t bytes = 0;
  for (ObjectMap& map : object_.maps) {
    if (is_verified()) {
      if (Result<void> believed = believe_map(map); !believed) return believed;
    }
    const bool is_shared = is_verified() && map.shape.type == BPF_MAP_TYPE_ARRAY &&
                           (map.shape.flags & BPF_F_MMAPABLE) != 0;
    if (!is_shared) bytes += bytes_of(map.shape, options.worker_count);
    if (bytes > kXdpMapBytesMax)
      return fail("map {}: with {} entries the program's maps take more than {} MiB: fewer entries",
                  map.shape.name, map.shape.max_entries, kXdpMapBytesMax >> 20);
    Result<std::unique_ptr<XdpMap>> made =
        is_shared
            ? create_array_over(map.fd.get())
            : create_map(
                  map.shape,
                  {.worker_count = options.worker_count, .id = map.kernel_id, .inner = map.inner});
    if (!made) return fail("map {}: {}", map.shape.name, made.error().text);
    if (!map.initial.empty() && map.initial.size() == (*made)->value_bytes()) {
      const uint32_t first = 0;
      (*made)->write(&first, map.initial.data(), BPF_ANY);
    }
    maps_.push_back(std::move(*made));
  }
  return {};
}

// The tag says nothing of which maps the instructions name: a value of another size there, and what
// the verifier proved is void. The kernel keeps a program's maps in the order in which its
// instructions name them first.
Result<void> XdpAttachment::check_maps_of(const ObjectProgram& program) const {
  std::array<uint32_t, kUsedMapsMax> ids{};
  bpf_prog_info info{};
  info.map_ids = reinterpret_cast<uint64_t>(ids.data());
  info.nr_map_ids = kUsedMapsMax;
  uint32_t bytes = sizeof info;
  if (bpf_obj_get_info_by_fd(program.fd.get(), &info, &bytes) != 0)
    return fail("the kernel says nothing about its maps: {}", errno_text(errno));
  std::vector<uint32_t> named;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!is_wide(instruction)) continue;
    ++i;  // its second half
    const auto kind = static_cast<WideImmediate>(instruction.src_reg);
    if (kind != WideImmediate::map && kind != WideImmediate::map_value) continue;
    const auto index = static_cast<uint32_t>(instruction.imm);
    if (index >= object_.maps.size()) return fail("it names a map that did not come with it");
    const uint32_t id = object_.maps[index].kernel_id;
    if (std::find(named.begin(), named.end(), id) == named.end()) named.push_back(id);
  }
  if (named.size() > std::min<size_t>(info.nr_map_ids, kUsedMapsMax) ||
      !std::equal(named.begin(), named.end(), ids.begin()))
    return fail("its maps are not those that the kernel has verified it with");
  return {};
}

Result<void> XdpAttachment::make_programs() {
  std::vector<MapRef> refs;
  for (const auto& map : maps_) refs.push_back(map->ref());
  XdpProgram::Options how;
  how.engine = is_verified() ? XdpProgram::fastest_engine() : XdpProgram::Engine::checked;
  for (const ObjectProgram& program : object_.programs) {
    if (is_verified()) {
      const Result<ProgramTag> tag = check_program_tag(program.fd.get(), program.instructions);
      if (!tag) return fail("program {}: {}", program.name, tag.error().text);
      if (Result<void> same = check_maps_of(program); !same)
        return fail("program {}: {}", program.name, same.error().text);
      how.tag = *tag;
    }
    how.name = program.name;
    how.id = static_cast<uint32_t>(programs_.size() + 1);
    auto made = XdpProgram::create({program.instructions, refs}, how);
    if (!made) return fail("program {}: {}", program.name, made.error().text);
    programs_.push_back(std::move(*made));
  }
  return {};
}

Result<void> XdpAttachment::fill_slots() {
  for (const ObjectSlot& slot : object_.slots) {
    if (slot.map >= maps_.size()) return fail("a slot names a map that is not there");
    XdpMap& map = *maps_[slot.map];
    int status = -EINVAL;
    if (map.shape().type == BPF_MAP_TYPE_PROG_ARRAY && slot.target < programs_.size())
      status = map.put_program(slot.index, programs_[slot.target].get(), slot.target + 1);
    else if (map.shape().type == BPF_MAP_TYPE_ARRAY_OF_MAPS && slot.target < maps_.size())
      status = map.put_map(&slot.index, maps_[slot.target].get(), BPF_ANY);
    if (status != 0)
      return fail("map {}: slot {} cannot be filled: {}", map.shape().name, slot.index,
                  errno_text(-status));
  }
  return {};
}

std::string XdpAttachment::tag() const { return is_verified() ? tag_text(program().tag()) : ""; }

std::string_view XdpAttachment::engine() const {
  switch (program().engine()) {
    case XdpProgram::Engine::compiled:
      return "compiled";
    case XdpProgram::Engine::interpreted:
      return "interpreted";
    case XdpProgram::Engine::checked:
      return "interpreted with checks";
  }
  return "?";
}

XdpMap* XdpAttachment::find_map(std::string_view name) const {
  for (const auto& map : maps_)
    if (map->shape().name == name) return map.get();
  // Maps of globals carry a part of the file's name before theirs: ".data" is enough.
  if (!name.starts_with('.')) return nullptr;
  for (const auto& map : maps_)
    if (map->shape().name.ends_with(name)) return map.get();
  return nullptr;
}

}  // namespace sluice

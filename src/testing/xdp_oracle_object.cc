#include "testing/xdp_oracle_object.h"

#include <bpf/bpf.h>
#include <linux/bpf.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "xdp/map_memory.h"

namespace sluice {
namespace {

using Bytes = std::vector<uint8_t>;

// What libbpf and the verifier said last, for the refusal.
std::string* said = nullptr;

int remember(libbpf_print_level, const char* format, va_list arguments) {
  char text[8192];
  std::vsnprintf(text, sizeof text, format, arguments);
  if (said != nullptr) said->append(text);
  return 0;
}

std::string last_of(const std::string& text) {
  constexpr size_t kShown = 600;
  return text.size() > kShown ? text.substr(text.size() - kShown) : text;
}

// Where the recording lookup writes; null: it does not.
thread_local std::vector<std::pair<const XdpMap*, Bytes>>* looked_up = nullptr;
HelperFunction plain_lookup = nullptr;

uint64_t recording_lookup(uint64_t r1, uint64_t r2, uint64_t r3, uint64_t r4, uint64_t r5) {
  if (looked_up != nullptr) {
    const auto* map = reinterpret_cast<const XdpMap*>(r1);
    const auto* key = reinterpret_cast<const uint8_t*>(r2);
    looked_up->emplace_back(map, Bytes(key, key + map->shape().key_size));
  }
  return plain_lookup(r1, r2, r3, r4, r5);
}

// All helpers, the lookup replaced.
const HelperTable& recording_helpers() {
  static const HelperTable table = [] {
    static std::vector<HelperEntry> entries;
    for (const auto& list : {packet_helpers(), map_helpers()})
      entries.insert(entries.end(), list.begin(), list.end());
    for (HelperEntry& entry : entries)
      if (entry.id == kHelperMapLookup) {
        plain_lookup = entry.function;
        entry.function = recording_lookup;
      }
    return HelperTable{std::span<const HelperEntry>(entries)};
  }();
  return table;
}

uint32_t processors() { return static_cast<uint32_t>(::libbpf_num_possible_cpus()); }

bool is_devices(bpf_map_type type) {
  return type == BPF_MAP_TYPE_DEVMAP || type == BPF_MAP_TYPE_DEVMAP_HASH;
}

// What can be given random values, and looks the same through bpf(2) afterwards.
bool is_of_bytes(bpf_map_type type) {
  switch (type) {
    case BPF_MAP_TYPE_ARRAY:
    case BPF_MAP_TYPE_PERCPU_ARRAY:
    case BPF_MAP_TYPE_HASH:
    case BPF_MAP_TYPE_PERCPU_HASH:
    case BPF_MAP_TYPE_LRU_HASH:
    case BPF_MAP_TYPE_LRU_PERCPU_HASH:
    case BPF_MAP_TYPE_LPM_TRIE:
      return true;
    default:
      return is_devices(type);
  }
}

bool is_array(bpf_map_type type) {
  return type == BPF_MAP_TYPE_ARRAY || type == BPF_MAP_TYPE_PERCPU_ARRAY;
}

}  // namespace

Result<std::vector<std::string>> programs_in(const std::string& path) {
  ::libbpf_set_print(remember);
  bpf_object* object = ::bpf_object__open_file(path.c_str(), nullptr);
  if (object == nullptr) return fail("cannot open {}: {}", path, errno_text(errno));
  std::vector<std::string> names;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object) names.push_back(::bpf_program__name(program));
  ::bpf_object__close(object);
  return names;
}

Result<std::unique_ptr<OracleObject>> OracleObject::load(const std::string& path,
                                                         const std::string& program,
                                                         const OracleOptions& options) {
  std::unique_ptr<OracleObject> object(new OracleObject(options));
  std::string log;
  said = &log;
  ::libbpf_set_print(remember);
  Result<void> opened = object->open(path, program);
  said = nullptr;
  if (!opened) return fail("{} {}", opened.error().text, last_of(log));
  return object;
}

OracleObject::~OracleObject() {
  engines_.clear();
  if (object_ != nullptr) ::bpf_object__close(object_);
}

Result<void> OracleObject::open(const std::string& path, const std::string& name) {
  object_ = ::bpf_object__open_file(path.c_str(), nullptr);
  if (object_ == nullptr) return fail("cannot open {}: {}", path, errno_text(errno));
  bpf_program* chosen = nullptr;
  bpf_program* program = nullptr;
  bpf_object__for_each_program(program, object_) {
    const bool is_chosen = ::bpf_program__name(program) == name;
    ::bpf_program__set_autoload(program, is_chosen);
    if (!is_chosen) continue;
    chosen = program;
    ::bpf_program__set_type(program, BPF_PROG_TYPE_XDP);
    ::bpf_program__set_expected_attach_type(program, static_cast<bpf_attach_type>(0));
  }
  if (chosen == nullptr) return fail("{} has no program {}", path, name);
  bpf_map* map = nullptr;
  bpf_object__for_each_map(map, object_)::bpf_map__set_pin_path(map, nullptr);
  if (const int error = ::bpf_object__load(object_); error != 0)
    return fail("the kernel refuses {}: {}.", name, errno_text(-error));
  bpf_object__for_each_map(map, object_) if (auto made = make_map(map); !made) return made;
  kernel_ = std::make_unique<KernelProgram>(::bpf_program__fd(chosen));
  return make_engines(chosen);
}

Result<void> OracleObject::make_map(bpf_map* map) {
  Triple triple;
  triple.name = ::bpf_map__name(map);
  triple.fd = ::bpf_map__fd(map);
  triple.is_internal = ::bpf_map__is_internal(map);
  MapShape shape;
  shape.type = ::bpf_map__type(map);
  shape.key_size = ::bpf_map__key_size(map);
  shape.value_size = ::bpf_map__value_size(map);
  shape.max_entries = ::bpf_map__max_entries(map);
  // Who may use it through bpf(2) is the kernel's affair.
  shape.flags = ::bpf_map__map_flags(map) & ~static_cast<uint32_t>(BPF_F_RDONLY_PROG);
  shape.extra = ::bpf_map__map_extra(map);
  shape.name = triple.name;
  triple.is_compared = is_of_bytes(shape.type) && !options_.ignored_maps.contains(triple.name);
  for (std::unique_ptr<XdpMap>& ours : triple.ours) {
    Result<std::unique_ptr<XdpMap>> made = create_map(shape, {.worker_count = processors()});
    if (!made) return fail("map {}: {}", triple.name, made.error().text);
    ours = std::move(*made);
  }
  if (triple.is_internal)
    if (Result<void> copied = copy_globals(triple); !copied) return copied;
  maps_.push_back(std::move(triple));
  return {};
}

Result<void> OracleObject::copy_globals(Triple& map) {
  const uint32_t key = 0;
  Bytes value(map.ours[0]->value_bytes());
  if (::bpf_map_lookup_elem(map.fd, &key, value.data()) != 0)
    return fail("cannot read {}: {}", map.name, errno_text(errno));
  for (const auto& ours : map.ours) ours->write(&key, value.data(), BPF_ANY);
  return {};
}

// The verified instructions, with our maps in place of the descriptors.
Result<void> OracleObject::make_engines(const bpf_program* program) {
  const auto* begin = reinterpret_cast<const Instruction*>(::bpf_program__insns(program));
  std::vector<Instruction> code(begin, begin + ::bpf_program__insn_cnt(program));
  for (size_t i = 0; i < code.size(); ++i) {
    if (!is_wide(code[i])) continue;
    const auto kind = static_cast<WideImmediate>(code[i].src_reg);
    if (kind == WideImmediate::map || kind == WideImmediate::map_value) {
      const auto found = std::find_if(maps_.begin(), maps_.end(),
                                      [&](const Triple& map) { return map.fd == code[i].imm; });
      if (found == maps_.end()) return fail("instruction {} names no map of the object", i);
      code[i].imm = static_cast<int32_t>(found - maps_.begin());
    }
    ++i;
  }
  const std::pair<XdpProgram::Engine, const HelperTable*> engines[] = {
      {XdpProgram::fastest_engine(), nullptr},
      {XdpProgram::Engine::interpreted, &recording_helpers()}};
  for (size_t engine = 0; engine < 2; ++engine) {
    std::vector<MapRef> refs;
    for (const Triple& map : maps_) refs.push_back(map.ours[engine]->ref());
    auto made = XdpProgram::create(
        {code, refs}, {.engine = engines[engine].first, .helpers = engines[engine].second});
    if (!made) return fail("we refuse it: {}", made.error().text);
    if (auto put = put_program(**made, engine, ::bpf_program__fd(program)); !put) return put;
    engines_.emplace_back(std::move(*made));
  }
  return {};
}

// The program itself is what its prog arrays hold, at index 0.
Result<void> OracleObject::put_program(const XdpProgram& program, size_t engine, int fd) {
  const uint32_t index = 0;
  for (const Triple& map : maps_) {
    if (map.ours[engine]->shape().type != BPF_MAP_TYPE_PROG_ARRAY) continue;
    if (::bpf_map_update_elem(map.fd, &index, &fd, BPF_ANY) != 0 ||
        map.ours[engine]->put_program(index, &program, 1) != 0)
      return fail("map {} does not take the program", map.name);
  }
  return {};
}

Result<void> OracleObject::put_everywhere(Triple& map, const Bytes& key, std::mt19937_64& random) {
  Bytes value(map.ours[0]->value_bytes());
  const bool has_small_numbers = random() % 2 == 0;
  for (uint8_t& byte : value) byte = static_cast<uint8_t>(random());
  for (size_t i = 0; has_small_numbers && i < value.size(); ++i)
    value[i] = i % 4 == 0 ? value[i] % 8 : 0;
  if (is_devices(map.ours[0]->shape().type)) {
    std::fill(value.begin(), value.end(), uint8_t{0});
    std::memcpy(value.data(), &kOraclePort, sizeof kOraclePort);
  }
  const int status = ::bpf_map_update_elem(map.fd, key.data(), value.data(), BPF_ANY);
  for (const auto& ours : map.ours)
    if (const int answer = ours->write(key.data(), value.data(), BPF_ANY); answer != status)
      return fail("map {}: an update gives {}, in the kernel {}", map.name, answer, status);
  if (status == 0) ++entries_filled_;
  return {};
}

Result<void> OracleObject::fill_map(Triple& map, std::mt19937_64& random) {
  const MapShape& shape = map.ours[0]->shape();
  // Room is left, since which key an LRU map gives up is its own business.
  size_t room = std::max<size_t>(1, shape.max_entries / 2);
  if (is_array(shape.type)) {
    for (uint32_t index = 0; index < std::min<uint32_t>(shape.max_entries, 4096); ++index) {
      Bytes key(sizeof index);
      std::memcpy(key.data(), &index, sizeof index);
      if (auto put = put_everywhere(map, key, random); !put) return put;
    }
    return {};
  }
  // Which devices a program names, no lookup tells.
  for (uint32_t index = 0; is_devices(shape.type) && index < 8; ++index)
    if (index < shape.max_entries || shape.type == BPF_MAP_TYPE_DEVMAP_HASH)
      map.keys.insert(Bytes(reinterpret_cast<const uint8_t*>(&index),
                            reinterpret_cast<const uint8_t*>(&index + 1)));
  for (const Bytes& key : map.keys) {
    if (random() % 2 == 0) continue;
    if (room-- == 0) break;
    if (auto put = put_everywhere(map, key, random); !put) return put;
  }
  return {};
}

Result<void> OracleObject::fill(std::span<const Bytes> packets, std::mt19937_64& random) {
  for (Triple& map : maps_)
    if (is_array(map.ours[0]->shape().type) && !map.is_internal)
      if (auto filled = fill_map(map, random); !filled) return filled;
  // Which keys: in the second round also those that are looked for once others are found.
  // All three run all packets, so that their maps stay the same.
  for (int round = 0; round < 2; ++round) {
    std::vector<std::pair<const XdpMap*, Bytes>> found;
    looked_up = &found;
    for (const Bytes& packet : packets)
      if (auto same = compare(packet); !same) return looked_up = nullptr, fail(same.error());
    looked_up = nullptr;
    for (Triple& map : maps_)
      for (const auto& [where, key] : found)
        if (where == map.ours[1].get() && map.keys.size() < 512) map.keys.insert(key);
    for (Triple& map : maps_)
      if (is_of_bytes(map.ours[0]->shape().type) && !map.is_internal &&
          !is_array(map.ours[0]->shape().type))
        if (auto filled = fill_map(map, random); !filled) return filled;
  }
  return {};
}

Result<OracleOutcome> OracleObject::compare(std::span<const uint8_t> packet) {
  const OracleOutcome expected = kernel_->run(packet);
  if (expected.error != 0)
    return fail("the kernel does not run it: {}", errno_text(expected.error));
  for (size_t engine = 0; engine < engines_.size(); ++engine) {
    const OracleOutcome outcome = engines_[engine].run(packet);
    if (outcome == expected) continue;
    return fail("the {} gives {} and {} bytes ({} of metadata), the kernel {} and {} ({}){}",
                engine == 0 ? "compiled program" : "interpreter", outcome.returned,
                outcome.bytes.size(), outcome.meta_bytes, expected.returned, expected.bytes.size(),
                expected.meta_bytes,
                outcome.bytes.size() == expected.bytes.size() ? ", other bytes" : "");
  }
  return expected;
}

Result<void> OracleObject::compare_map(Triple& map) {
  const size_t bytes = map.ours[0]->value_bytes();
  // What lies between the copies of a per-CPU value is nobody's.
  const size_t size = map.ours[0]->shape().value_size;
  const size_t stride = map.ours[0]->copies() > 1 ? value_stride(size) : bytes;
  size_t kernel_count = 0;
  Bytes key(map.ours[0]->shape().key_size), next(key), value(bytes), own(bytes);
  int status = ::bpf_map_get_next_key(map.fd, nullptr, next.data());
  for (; status == 0; status = ::bpf_map_get_next_key(map.fd, key.data(), next.data())) {
    key = next;
    if (::bpf_map_lookup_elem(map.fd, key.data(), value.data()) != 0) continue;
    ++kernel_count;
    for (const auto& ours : map.ours) {
      if (ours->read(key.data(), own.data()) != 0)
        return fail("map {}: a key of the kernel's is missing", map.name);
      for (size_t at = 0; at < bytes; at += stride)
        if (std::memcmp(&own[at], &value[at], std::min(size, bytes - at)) != 0)
          return fail("map {}: a value differs (key {:02x})", map.name, fmt::join(key, ""));
    }
  }
  for (const auto& ours : map.ours) {
    size_t count = 0;
    for (status = ours->next_key(nullptr, next.data()); status == 0;
         status = ours->next_key(key.data(), next.data())) {
      key = next;
      count += ours->read(key.data(), own.data()) == 0 ? 1 : 0;
    }
    if (count != kernel_count)
      return fail("map {}: {} keys, in the kernel {}", map.name, count, kernel_count);
  }
  return {};
}

Result<void> OracleObject::compare_maps() {
  for (Triple& map : maps_)
    if (map.is_compared)
      if (Result<void> same = compare_map(map); !same) return same;
  return {};
}

}  // namespace sluice

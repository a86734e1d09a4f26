#include "control/xdp_object.h"

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

#include "base/clock.h"
#include "base/log.h"
#include "xdp/map.h"

namespace sluice {
namespace {

constexpr size_t kLogBytes = 16 << 20;
constexpr size_t kProgramsMax = 64;

// What libbpf has to say while it works, for the message of a failure. It has one place for all.
thread_local std::string libbpf_words;

int keep_words(libbpf_print_level level, const char* format, va_list arguments) {
  if (level > LIBBPF_INFO) return 0;
  char line[512];
  const int count = std::vsnprintf(line, sizeof line, format, arguments);
  if (count > 0 && libbpf_words.size() < 16 * 1024) libbpf_words += line;
  return count;
}

std::string first_line(std::string_view text) {
  text = text.substr(0, text.find('\n'));
  if (text.starts_with("libbpf: ")) text.remove_prefix(8);
  return std::string(text);
}

struct CloseObject {
  void operator()(bpf_object* object) const { bpf_object__close(object); }
};
using ObjectHandle = std::unique_ptr<bpf_object, CloseObject>;

bool is_array_like(bpf_map_type type) { return type == BPF_MAP_TYPE_ARRAY; }

MapShape shape_of(const bpf_map* map) {
  return {.type = bpf_map__type(map),
          .key_size = bpf_map__key_size(map),
          .value_size = bpf_map__value_size(map),
          .max_entries = bpf_map__max_entries(map),
          .flags = bpf_map__map_flags(map),
          .extra = bpf_map__map_extra(map),
          .name = bpf_map__name(map)};
}

enum class LogLine : uint8_t { source, instruction, sentence, noise };

// Whether the text begins with a register's state: "R1=…", "R10_w=…".
bool is_register_state(std::string_view line) {
  if (!line.starts_with('R')) return false;
  const size_t end = line.find_first_not_of("0123456789", 1);
  return end != std::string_view::npos && end > 1 && (line[end] == '=' || line[end] == '_');
}

LogLine kind_of_log_line(std::string_view line) {
  if (line.starts_with("; ")) return LogLine::source;
  const size_t digits = line.find_first_not_of("0123456789");
  if (digits != 0 && digits != std::string_view::npos && line.substr(digits).starts_with(": "))
    return LogLine::instruction;
  for (const std::string_view word :
       {"processed ", "verification time", "stack depth", "old state", "cur state", " cur state",
        "from ", "func#", "arg#", "mark_precise", "last_idx", "regs=", "frame", "parent "})
    if (line.starts_with(word)) return LogLine::noise;
  return line.empty() || is_register_state(line) ? LogLine::noise : LogLine::sentence;
}

class Loader {
 public:
  Loader(const ObjectRequest& request, bool verify) : request_(request), verify_(verify) {}

  // Why run() failed: the kernel was not willing to look at all.
  bool may_not_ask() const { return may_not_ask_; }

  Result<XdpObject> run() {
    libbpf_words.clear();
    libbpf_set_print(keep_words);
    const uint64_t begin_ns = monotonic_ns();
    for (auto step : {&Loader::open, &Loader::choose_program, &Loader::prepare_maps, &Loader::load})
      if (Result<void> done = (this->*step)(); !done) return done.error();
    object_.kernel_ns = monotonic_ns() - begin_ns;
    for (auto step : {&Loader::take_maps, &Loader::take_programs, &Loader::take_slots})
      if (Result<void> done = (this->*step)(); !done) return done.error();
    object_.path = request_.path;
    return std::move(object_);
  }

 private:
  template <typename... Args>
  Failure refuse(fmt::format_string<Args...> format, Args&&... args) const {
    return fail("{}: {}", request_.path, fmt::format(format, std::forward<Args>(args)...));
  }

  Result<void> open() {
    if (::access(request_.path.c_str(), R_OK) != 0) return refuse("{}", errno_text(errno));
    handle_.reset(bpf_object__open_file(request_.path.c_str(), nullptr));
    if (handle_) return {};
    const std::string why = libbpf_words.empty() ? errno_text(errno) : first_line(libbpf_words);
    return refuse("this is no BPF object file that libbpf can read: {}", why);
  }

  static bool is_xdp(const bpf_program* program) {
    const std::string_view section = bpf_program__section_name(program);
    return bpf_program__type(program) == BPF_PROG_TYPE_XDP || section.starts_with("xdp");
  }
  static bool is_second_program(const bpf_program* program) {
    const std::string_view section = bpf_program__section_name(program);
    return section.starts_with("xdp/devmap") || section.starts_with("xdp/cpumap") ||
           section.starts_with("xdp_devmap") || section.starts_with("xdp_cpumap");
  }

  Result<void> choose_program() {
    std::string names;
    size_t count = 0;
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, handle_.get()) {
      const std::string name = bpf_program__name(program);
      if (!request_.program.empty() ? name == request_.program
                                    : is_xdp(program) && !is_second_program(program)) {
        main_ = program;
        ++count;
      }
      names += (names.empty() ? "" : ", ") + name;
    }
    if (names.empty()) return refuse("there is no program in it");
    if (count == 0 && !request_.program.empty())
      return refuse("no program is called {}: there are {}", request_.program, names);
    if (count == 0) return refuse("no program has a section \"xdp\": name one of {}", names);
    if (count > 1) return refuse("it has several XDP programs: add program= with one of {}", names);
    if (is_second_program(main_))
      return refuse("{} is made to run behind a redirect (section {}), which does not exist here",
                    bpf_program__name(main_), bpf_program__section_name(main_));
    if (std::string_view(bpf_program__section_name(main_)).starts_with("xdp.frags"))
      return refuse(
          "{} is made for packets in fragments (section {}): not supported; a program of "
          "section \"xdp\" is",
          bpf_program__name(main_), bpf_program__section_name(main_));
    return {};
  }

  // Everything is judged by its name before the kernel makes anything.
  Result<void> prepare_maps() {
    bool has_program_array = false;
    bpf_map* map = nullptr;
    bpf_object__for_each_map(map, handle_.get()) {
      bpf_map__set_pin_path(map, nullptr);
      if (bpf_map__type(map) == BPF_MAP_TYPE_PROG_ARRAY) has_program_array = true;
      if (is_array_like(bpf_map__type(map)))
        bpf_map__set_map_flags(map, bpf_map__map_flags(map) | BPF_F_MMAPABLE);
    }
    bpf_program* program = nullptr;
    bpf_object__for_each_program(program, handle_.get()) {
      const bool is_wanted =
          program == main_ || (has_program_array && is_xdp(program) && !is_second_program(program));
      bpf_program__set_autoload(program, is_wanted);
      if (!is_wanted) continue;
      bpf_program__set_type(program, BPF_PROG_TYPE_XDP);
      wanted_.push_back(program);
      if (program == main_) std::swap(wanted_.front(), wanted_.back());
    }
    if (wanted_.size() > kProgramsMax)
      return refuse("it has {} programs: at most {} are loaded", wanted_.size(), kProgramsMax);
    return {};
  }

  Result<void> load() {
    log_.resize(kLogBytes);
    for (bpf_program* program : wanted_)
      bpf_program__set_log_buf(program, log_.data(), log_.size());
    if (!verify_) {
      // libbpf then relocates, and writes down what it would have asked the kernel for.
      LIBBPF_OPTS(gen_loader_opts, unused);
      if (bpf_object__gen_loader(handle_.get(), &unused) != 0)
        return refuse("libbpf cannot relocate it without the kernel");
    }
    if (bpf_object__load(handle_.get()) == 0) return {};
    const int error = errno;
    const std::string_view log = log_.c_str();
    if (!log.empty()) {
      log_debug("{}", log);
      return refuse("the kernel's verifier refuses it: {}", shortened_verifier_log(log));
    }
    may_not_ask_ = error == EPERM || error == EACCES || error == ENOSYS;
    if (may_not_ask_)
      return refuse(
          "the kernel may not be asked whether it is safe: CAP_BPF, CAP_NET_ADMIN and "
          "CAP_PERFMON are needed (or root). --xdp-unverified=interpret runs it in the "
          "checked interpreter instead, which is slower");
    return refuse("the kernel refuses it: {} ({})", errno_text(error), first_line(libbpf_words));
  }

  Result<void> take_maps() {
    const bpf_map* map = nullptr;
    bpf_object__for_each_map(map, handle_.get()) {
      ObjectMap taken{.shape = shape_of(map), .inner = {}, .fd = Fd(), .initial = {}};
      if (const bpf_map* inner = bpf_map__inner_map(const_cast<bpf_map*>(map)))
        taken.inner = shape_of(inner);
      if (verify_) {
        taken.fd = Fd(fcntl(bpf_map__fd(map), F_DUPFD_CLOEXEC, 3));
        if (!taken.fd) return refuse("map {}: {}", taken.shape.name, errno_text(errno));
        bpf_map_info info{};
        uint32_t bytes = sizeof info;
        if (bpf_obj_get_info_by_fd(taken.fd.get(), &info, &bytes) != 0)
          return refuse("map {}: {}", taken.shape.name, errno_text(errno));
        taken.kernel_id = info.id;
        taken.shape.max_entries = info.max_entries;
      } else {
        size_t initial_bytes = 0;
        const void* initial = bpf_map__initial_value(const_cast<bpf_map*>(map), &initial_bytes);
        const auto* first = static_cast<const uint8_t*>(initial);
        if (initial != nullptr) taken.initial.assign(first, first + initial_bytes);
      }
      object_.maps.push_back(std::move(taken));
      handles_.push_back(map);
    }
    return {};
  }

  Result<void> take_programs() {
    for (const bpf_program* program : wanted_) {
      ObjectProgram taken{.name = bpf_program__name(program), .instructions = {}, .fd = Fd()};
      const bpf_insn* first = bpf_program__insns(program);
      taken.instructions.assign(first, first + bpf_program__insn_cnt(program));
      if (verify_) {
        taken.fd = Fd(fcntl(bpf_program__fd(program), F_DUPFD_CLOEXEC, 3));
        if (!taken.fd) return refuse("program {}: {}", taken.name, errno_text(errno));
      }
      for (Instruction& instruction : taken.instructions) {
        if (!is_wide(instruction)) continue;
        if (Result<void> done = number_the_map(instruction); !done) return done;
      }
      object_.programs.push_back(std::move(taken));
    }
    return {};
  }

  // libbpf wrote the descriptor of the map (or its place in the file); we want our own index.
  Result<void> number_the_map(Instruction& instruction) {
    const auto kind = static_cast<WideImmediate>(instruction.src_reg);
    if (kind == WideImmediate::map_index || kind == WideImmediate::map_index_value) {
      instruction.src_reg = static_cast<uint8_t>(
          kind == WideImmediate::map_index ? WideImmediate::map : WideImmediate::map_value);
      return {};
    }
    if (kind != WideImmediate::map && kind != WideImmediate::map_value) return {};
    for (size_t i = 0; i < handles_.size(); ++i) {
      if (bpf_map__fd(handles_[i]) != instruction.imm) continue;
      instruction.imm = static_cast<int32_t>(i);
      return {};
    }
    return refuse("it names a map that is not its own");
  }

  // The file's own entries: the kernel's twin says what lies where.
  Result<void> take_slots() {
    if (!verify_) return {};
    for (uint32_t m = 0; m < object_.maps.size(); ++m) {
      const ObjectMap& map = object_.maps[m];
      const bool holds_programs = map.shape.type == BPF_MAP_TYPE_PROG_ARRAY;
      if (!holds_programs && map.shape.type != BPF_MAP_TYPE_ARRAY_OF_MAPS) continue;
      for (uint32_t i = 0; i < map.shape.max_entries; ++i) {
        uint32_t id = 0;
        if (bpf_map_lookup_elem(map.fd.get(), &i, &id) != 0) continue;
        if (const auto target = holds_programs ? program_of(id) : map_of(id))
          object_.slots.push_back({m, i, *target});
      }
    }
    return {};
  }

  std::optional<uint32_t> program_of(uint32_t id) const {
    for (uint32_t p = 0; p < object_.programs.size(); ++p)
      if (id_of(object_.programs[p]) == id) return p;
    return std::nullopt;
  }
  std::optional<uint32_t> map_of(uint32_t id) const {
    for (uint32_t m = 0; m < object_.maps.size(); ++m)
      if (object_.maps[m].kernel_id == id) return m;
    return std::nullopt;
  }

  static uint32_t id_of(const ObjectProgram& program) {
    bpf_prog_info info{};
    uint32_t bytes = sizeof info;
    return bpf_obj_get_info_by_fd(program.fd.get(), &info, &bytes) == 0 ? info.id : 0;
  }

  const ObjectRequest& request_;
  const bool verify_;
  bool may_not_ask_ = false;
  ObjectHandle handle_;
  bpf_program* main_ = nullptr;
  std::vector<bpf_program*> wanted_;  // the main one first
  std::vector<const bpf_map*> handles_;
  std::string log_;
  XdpObject object_;
};

}  // namespace

std::string shortened_verifier_log(std::string_view log) {
  std::string complaint, source;
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    const std::string_view line = log.substr(at, end - at);
    at = end + 1;
    switch (kind_of_log_line(line)) {
      case LogLine::source:
        source = line.substr(2);
        complaint.clear();
        break;
      case LogLine::instruction:
        complaint.clear();  // whatever was said before did not end it
        break;
      case LogLine::sentence:
        complaint += (complaint.empty() ? "" : "; ") + std::string(line);
        break;
      case LogLine::noise:
        break;
    }
  }
  return source.empty() ? complaint : fmt::format("{} (at: {})", complaint, source);
}

Result<XdpObject> load_xdp_object(const ObjectRequest& request) {
  Loader verifying(request, true);
  Result<XdpObject> object = verifying.run();
  if (object || !verifying.may_not_ask() || !request.may_be_unverified) return object;
  log_warning(
      "{}: the kernel's verifier cannot be asked: the program will be interpreted, with "
      "checks",
      request.path);
  return Loader(request, false).run();
}

}  // namespace sluice

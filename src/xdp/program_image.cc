#include "xdp/program_image.h"

#include <algorithm>

#include "xdp/opcode_check.h"

namespace sluice {
namespace {

// The kernel's own bound for privileged programs.
constexpr size_t kInstructionsMax = 1'000'000;
constexpr size_t kMapsMax = 64;

class Checker {
 public:
  Checker(const ImageSource& source, const HelperTable& helpers) : source_(source) {
    image_.helpers = &helpers;
  }

  Result<ProgramImage> run() {
    const size_t count = source_.instructions.size();
    if (count == 0 || count > kInstructionsMax)
      return fail("a program has 1 to {} instructions, this one {}", kInstructionsMax, count);
    if (source_.maps.size() > kMapsMax)
      return fail("a program may name {} maps, this one names {}", kMapsMax, source_.maps.size());
    image_.instructions.assign(source_.instructions.begin(), source_.instructions.end());
    image_.maps.assign(source_.maps.begin(), source_.maps.end());
    image_.lookup_maps.assign(count, ProgramImage::kNoMap);
    is_second_half_.assign(count, false);
    is_target_.assign(count, false);
    named_map_.assign(count, ProgramImage::kNoMap);
    starts_.push_back(0);
    for (auto step : {&Checker::check_each, &Checker::find_subprograms, &Checker::check_jumps})
      if (Result<void> result = (this->*step)(); !result) return fail(result.error());
    find_lookups();
    if (Result<void> result = check_map_reads(); !result) return fail(result.error());
    return std::move(image_);
  }

 private:
  Failure refuse(size_t index, std::string_view why) const {
    return fail("instruction {}: {}", index, why);
  }
  Instruction& at(size_t index) { return image_.instructions[index]; }
  size_t count() const { return image_.instructions.size(); }

  Result<void> check_each() {
    for (size_t i = 0; i < count(); ++i) {
      if (const std::string fault = fault_of(at(i)); !fault.empty()) return refuse(i, fault);
      Result<void> result;
      if (is_wide(at(i)))
        result = check_wide(i++);
      else if (is_call(at(i)))
        result = check_call(i);
      else if (is_call_by_register(at(i)) && !source_.may_call_by_register)
        result = refuse(i, "calls through a register (callx) are not supported");
      if (!result) return result;
    }
    return {};
  }

  Result<void> check_wide(size_t i) {
    if (i + 1 == count()) return refuse(i, "the second half of a 64-bit number is missing");
    const Instruction& second = at(i + 1);
    if (second.code != 0 || second.dst_reg != 0 || second.src_reg != 0 || second.off != 0)
      return refuse(i + 1, "this is no second half of a 64-bit number");
    is_second_half_[i + 1] = true;
    switch (static_cast<WideImmediate>(at(i).src_reg)) {
      case WideImmediate::number:
        return {};
      case WideImmediate::map:
      case WideImmediate::map_value:
        return put_map(i);
      case WideImmediate::function:
        return check_function(i, at(i).imm);
      case WideImmediate::kernel_symbol:
        return refuse(i,
                      "variables of the kernel (ksyms) are not supported: there is no kernel "
                      "under this program");
      default:
        return refuse(i, "this kind of 64-bit number is unknown");
    }
  }

  // The register gets what helpers cast back: the map; or where in its memory a global lies.
  Result<void> put_map(size_t i) {
    const auto index = static_cast<uint32_t>(at(i).imm);
    if (index >= image_.maps.size()) return refuse(i, "no such map");
    const MapRef& ref = image_.maps[index];
    auto value = reinterpret_cast<uint64_t>(ref.map);
    if (at(i).src_reg == static_cast<uint8_t>(WideImmediate::map_value)) {
      const auto offset = static_cast<uint32_t>(at(i + 1).imm);
      if (!ref.array || ref.array->max_entries == 0 || offset >= ref.array->value_size)
        return refuse(i, "this global lies outside its map");
      value = reinterpret_cast<uint64_t>(ref.array->base) + offset;
    } else {
      named_map_[i] = static_cast<uint16_t>(index);
    }
    at(i).src_reg = static_cast<uint8_t>(WideImmediate::number);
    at(i).imm = static_cast<int32_t>(value);
    at(i + 1).imm = static_cast<int32_t>(value >> 32);
    return {};
  }

  Result<void> check_function(size_t i, int64_t distance) {
    const int64_t target = static_cast<int64_t>(i) + 1 + distance;
    if (target <= 0 || target >= static_cast<int64_t>(count()))
      return refuse(i, "the called function lies outside the program");
    starts_.push_back(static_cast<uint32_t>(target));
    return {};
  }

  Result<void> check_call(size_t i) {
    switch (static_cast<CallKind>(at(i).src_reg)) {
      case CallKind::helper:
        if (at(i).imm == kPoisonedCall) return {};
        if (at(i).imm >= 0 && image_.helpers->is_offered(static_cast<uint32_t>(at(i).imm)))
          return {};
        return refuse(i, fmt::format("the helper {} is not offered to programs that run outside "
                                     "the kernel",
                                     helper_name(static_cast<uint32_t>(at(i).imm))));
      case CallKind::subprogram:
        return check_function(i, at(i).imm);
      case CallKind::kernel_function:
        return refuse(i,
                      "functions of the kernel (kfuncs) are not supported: there is no kernel "
                      "under this program");
      default:
        return refuse(i, "this kind of call is unknown");
    }
  }

  Result<void> find_subprograms() {
    std::sort(starts_.begin(), starts_.end());
    starts_.erase(std::unique(starts_.begin(), starts_.end()), starts_.end());
    for (size_t i = 0; i < starts_.size(); ++i) {
      const auto end = i + 1 < starts_.size() ? starts_[i + 1] : static_cast<uint32_t>(count());
      if (is_second_half_[starts_[i]])
        return refuse(starts_[i], "a function begins within a 64-bit number");
      image_.subprograms.push_back({starts_[i], end});
      const Instruction& last = at(end - 1);
      if (is_second_half_[end - 1] || (!is_exit(last) && !is_goto(last)))
        return refuse(end - 1, "a function runs over its end");
    }
    return {};
  }

  Result<void> check_jumps() {
    for (const Subprogram& part : image_.subprograms)
      for (uint32_t i = part.begin; i < part.end; ++i) {
        const Instruction& jump = at(i);
        if (is_second_half_[i] || !is_jump(jump) || is_call(jump) || is_exit(jump) ||
            is_call_by_register(jump))
          continue;
        const int64_t target = int64_t{i} + 1 + jump_distance(jump);
        if (target < part.begin || target >= part.end)
          return refuse(i, "a jump leads out of its function");
        if (is_second_half_[static_cast<size_t>(target)])
          return refuse(i, "a jump leads into a 64-bit number");
        is_target_[static_cast<size_t>(target)] = true;
      }
    return {};
  }

  // A lookup is certain to be about one map when r1 was set to it on the straight way to the call.
  void find_lookups() {
    uint16_t in_r1 = ProgramImage::kNoMap;
    for (size_t i = 0; i < count(); ++i) {
      if (is_target_[i] || std::binary_search(starts_.begin(), starts_.end(), i))
        in_r1 = ProgramImage::kNoMap;
      if (is_second_half_[i]) continue;
      const Instruction& instruction = at(i);
      if (is_call(instruction) || is_call_by_register(instruction)) {
        if (is_call(instruction) && instruction.src_reg == 0 &&
            instruction.imm == int32_t{kHelperMapLookup})
          image_.lookup_maps[i] = in_r1;
        in_r1 = ProgramImage::kNoMap;
      } else if (named_map_[i] != ProgramImage::kNoMap && instruction.dst_reg == 1) {
        in_r1 = named_map_[i];
      } else if (may_write_r1(instruction)) {
        in_r1 = ProgramImage::kNoMap;
      }
    }
  }

  // The verifier lets a program read the kernel's description of a map (struct bpf_map) through the
  // map's address; ours lies elsewhere and looks otherwise. Followed on straight ways only: what is
  // known of a register ends where others jump to.
  Result<void> check_map_reads() const {
    uint32_t holds_map = 0;  // a bit a register
    for (size_t i = 0; i < count(); ++i) {
      const Instruction& instruction = image_.instructions[i];
      if (is_second_half_[i]) continue;
      if (is_target_[i] || std::binary_search(starts_.begin(), starts_.end(), i)) holds_map = 0;
      const uint32_t to = 1u << instruction.dst_reg;
      const bool from_map = (holds_map >> instruction.src_reg & 1) != 0;
      switch (class_of(instruction)) {
        case BPF_LD:
          holds_map = named_map_[i] != ProgramImage::kNoMap ? holds_map | to : holds_map & ~to;
          break;
        case BPF_LDX:
          if (from_map)
            return refuse(i,
                          "it reads the kernel's description of a map, which is not "
                          "there: only helpers can use a map's address");
          holds_map &= ~to;
          break;
        case BPF_ALU64:
          if (operation_of(instruction) != BPF_MOV) break;  // arithmetic leaves what it was
          holds_map = uses_register(instruction) && from_map ? holds_map | to : holds_map & ~to;
          break;
        case BPF_ALU:
          holds_map &= ~to;
          break;
        case BPF_JMP:
          if (is_call(instruction) || is_call_by_register(instruction)) holds_map &= ~0x3fu;
          if (is_goto(instruction) || is_exit(instruction)) holds_map = 0;
          break;
        default:
          break;
      }
    }
    return {};
  }

  static bool may_write_r1(const Instruction& instruction) {
    switch (class_of(instruction)) {
      case BPF_STX:  // an atomic operation fetches into its source
        return mode_of(instruction) == BPF_ATOMIC && instruction.src_reg == 1;
      case BPF_ST:
      case BPF_JMP:
      case BPF_JMP32:
        return false;
      default:
        return instruction.dst_reg == 1;
    }
  }

  const ImageSource& source_;
  ProgramImage image_;
  std::vector<bool> is_second_half_;
  std::vector<bool> is_target_;
  std::vector<uint16_t> named_map_;  // of a wide immediate: the map that it names
  std::vector<uint32_t> starts_;
};

}  // namespace

Result<ProgramImage> check_image(const ImageSource& source, const HelperTable& helpers) {
  return Checker(source, helpers).run();
}

}  // namespace sluice

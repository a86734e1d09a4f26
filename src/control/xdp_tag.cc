#include "control/xdp_tag.h"

#include <bpf/bpf.h>
#include <sha1.h>
#include <sha2.h>

#include <cerrno>
#include <cstring>
#include <vector>

namespace sluice {
namespace {

// As the kernel sums them: without what differs from load to load.
std::vector<Instruction> without_map_numbers(std::span<const Instruction> instructions) {
  std::vector<Instruction> plain(instructions.begin(), instructions.end());
  for (size_t i = 0; i + 1 < plain.size(); ++i) {
    if (!is_wide(plain[i])) continue;
    const auto kind = static_cast<WideImmediate>(plain[i].src_reg);
    if (kind == WideImmediate::map || kind == WideImmediate::map_value)
      plain[i].imm = plain[i + 1].imm = 0;
    ++i;
  }
  return plain;
}

template <size_t kBytes>
bool begins_with(const std::array<uint8_t, kBytes>& digest, const ProgramTag& tag) {
  return std::memcmp(digest.data(), tag.data(), tag.size()) == 0;
}

}  // namespace

Result<ProgramTag> check_program_tag(int program_fd, std::span<const Instruction> instructions) {
  bpf_prog_info info{};
  uint32_t info_bytes = sizeof info;
  if (bpf_obj_get_info_by_fd(program_fd, &info, &info_bytes) != 0)
    return fail("the kernel says nothing about the program: {}", errno_text(errno));
  if (info.type != BPF_PROG_TYPE_XDP)
    return fail("the kernel has verified this program as type {}, not as XDP", info.type);
  ProgramTag tag;
  std::memcpy(tag.data(), info.tag, tag.size());
  const std::vector<Instruction> plain = without_map_numbers(instructions);
  const auto* bytes = reinterpret_cast<const uint8_t*>(plain.data());
  const size_t byte_count = plain.size() * sizeof(Instruction);
  SHA2_CTX sha256;
  std::array<uint8_t, SHA256_DIGEST_LENGTH> digest256;
  SHA256Init(&sha256);
  SHA256Update(&sha256, bytes, byte_count);
  SHA256Final(digest256.data(), &sha256);
  SHA1_CTX sha1;
  std::array<uint8_t, SHA1_DIGEST_LENGTH> digest1;
  SHA1Init(&sha1);
  SHA1Update(&sha1, bytes, byte_count);
  SHA1Final(digest1.data(), &sha1);
  if (!begins_with(digest256, tag) && !begins_with(digest1, tag))
    return fail("these are not the instructions that the kernel has verified (tag {})",
                tag_text(tag));
  return tag;
}

std::string tag_text(const ProgramTag& tag) {
  std::string text;
  for (const uint8_t byte : tag) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace sluice

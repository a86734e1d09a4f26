// What the bytes of a map mean: its BTF, which the kernel keeps with the twin. Asked for by the
// client of a daemon, which may look maps up by their number (that needs CAP_SYS_ADMIN); where it
// may not, or where there is no BTF, bytes are shown as bytes.
//
//   const MapTypes types(kernel_id);
//   fmt::print("{}: {}\n", types.key_text(key), types.value_text(value));
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

struct btf;

namespace sluice {

class MapTypes {
 public:
  explicit MapTypes(uint32_t kernel_id);  // 0: of no map
  // JSON, as bpftool prints them.
  std::string key_text(std::span<const uint8_t> bytes) const { return text(key_type_, bytes); }
  std::string value_text(std::span<const uint8_t> bytes) const { return text(value_type_, bytes); }

 private:
  struct Free {
    void operator()(btf* types) const;
  };
  std::string text(uint32_t type, std::span<const uint8_t> bytes) const;
  std::unique_ptr<btf, Free> types_;
  uint32_t key_type_ = 0;
  uint32_t value_type_ = 0;
};

}  // namespace sluice

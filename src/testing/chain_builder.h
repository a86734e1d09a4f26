// ChainBuilder: what a driver wants to put on a ring, piece by piece, legal or not.
//
//   ChainBuilder{}.readable(12).readable(packet)          // two buffers that the device reads
//   ChainBuilder{}.writable(2048).indirect()              // in an indirect table
//   ChainBuilder{}.readable(10).indirect_from_here().readable(60)
//   ChainBuilder{}.readable_at(0xffff'ffff'ffff'f000, 4096)  // any address, for hostile chains
#pragma once

#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace sluice {

class ChainBuilder {
 public:
  struct Piece {
    bool is_writable = false;
    uint32_t bytes = 0;
    std::vector<uint8_t> content;     // readable pieces with memory of their own
    std::optional<uint64_t> address;  // given: nothing is allocated or written
  };
  static constexpr size_t kNoIndirect = SIZE_MAX;

  // `bytes` bytes counting up from a start that differs from piece to piece.
  ChainBuilder& readable(uint32_t bytes) {
    std::vector<uint8_t> content(bytes);
    std::iota(content.begin(), content.end(), static_cast<uint8_t>(pieces_.size() * 16 + 1));
    return readable(std::span<const uint8_t>(content));
  }
  ChainBuilder& readable(std::span<const uint8_t> content) {
    pieces_.push_back({false, static_cast<uint32_t>(content.size()),
                       std::vector<uint8_t>(content.begin(), content.end()), std::nullopt});
    return *this;
  }
  ChainBuilder& writable(uint32_t bytes) {
    pieces_.push_back({true, bytes, {}, std::nullopt});
    return *this;
  }
  ChainBuilder& readable_at(uint64_t address, uint32_t bytes) {
    pieces_.push_back({false, bytes, {}, address});
    return *this;
  }
  ChainBuilder& writable_at(uint64_t address, uint32_t bytes) {
    pieces_.push_back({true, bytes, {}, address});
    return *this;
  }
  // The whole chain goes into one indirect table.
  ChainBuilder& indirect() {
    indirect_from_ = 0;
    return *this;
  }
  // Pieces from here on go into an indirect table at the end of the chain. [virtio 2.7.5.3.2]
  ChainBuilder& indirect_from_here() {
    indirect_from_ = pieces_.size();
    return *this;
  }
  // Where the table is put; else it is allocated.
  ChainBuilder& table_at(uint64_t address) {
    table_address_ = address;
    return *this;
  }

  const std::vector<Piece>& pieces() const { return pieces_; }
  size_t indirect_from() const { return indirect_from_; }
  std::optional<uint64_t> table_address() const { return table_address_; }
  bool has_table() const { return indirect_from_ < pieces_.size(); }
  // How many descriptors of the ring's own table it needs.
  size_t descriptor_count() const { return has_table() ? indirect_from_ + 1 : pieces_.size(); }

 private:
  std::vector<Piece> pieces_;
  size_t indirect_from_ = kNoIndirect;
  std::optional<uint64_t> table_address_;
};

}  // namespace sluice

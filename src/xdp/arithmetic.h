// Arithmetic and comparisons as BPF defines them, for the interpreter. [RFC 9669 4]
//
// T is uint32_t or uint64_t. Nothing traps: division by zero gives 0, its remainder the dividend,
// shifts use the low bits of the distance.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "xdp/instruction.h"

namespace sluice {

template <typename T>
T divide(T a, T b, bool is_signed) {
  if (b == 0) return 0;
  if (!is_signed) return a / b;
  using S = std::make_signed_t<T>;
  if (static_cast<S>(b) == -1) return T{0} - a;  // the least number has no opposite: it stays
  return static_cast<T>(static_cast<S>(a) / static_cast<S>(b));
}

template <typename T>
T remainder_of(T a, T b, bool is_signed) {
  if (b == 0) return a;
  if (!is_signed) return a % b;
  using S = std::make_signed_t<T>;
  if (static_cast<S>(b) == -1) return 0;
  return static_cast<T>(static_cast<S>(a) % static_cast<S>(b));
}

template <typename T>
T sign_extended(T value, int bits) {
  switch (bits) {
    case 8:
      return static_cast<T>(static_cast<int8_t>(value));
    case 16:
      return static_cast<T>(static_cast<int16_t>(value));
    case 32:
      return static_cast<T>(static_cast<int32_t>(value));
    default:
      return value;
  }
}

inline uint64_t byte_swapped(uint64_t value, int bits) {
  switch (bits) {
    case 16:
      return __builtin_bswap16(static_cast<uint16_t>(value));
    case 32:
      return __builtin_bswap32(static_cast<uint32_t>(value));
    default:
      return __builtin_bswap64(value);
  }
}

// BPF_END of class ALU (to little or big endian) and of class ALU64 (swap).
inline uint64_t converted(const Instruction& instruction, uint64_t value) {
  const bool to_big = uses_register(instruction);
  const bool machine_is_big = std::endian::native == std::endian::big;
  const int bits = instruction.imm;
  if (class_of(instruction) == BPF_ALU64 || to_big != machine_is_big)
    return byte_swapped(value, bits);
  return bits == 64 ? value : value & ((uint64_t{1} << bits) - 1);
}

template <typename T>
T arithmetic(const Instruction& instruction, T a, T b) {
  constexpr T kShiftMask = std::numeric_limits<T>::digits - 1;
  switch (operation_of(instruction)) {
    case BPF_ADD:
      return a + b;
    case BPF_SUB:
      return a - b;
    case BPF_MUL:
      return a * b;
    case BPF_DIV:
      return divide(a, b, instruction.off == 1);
    case BPF_MOD:
      return remainder_of(a, b, instruction.off == 1);
    case BPF_OR:
      return a | b;
    case BPF_AND:
      return a & b;
    case BPF_XOR:
      return a ^ b;
    case BPF_LSH:
      return a << (b & kShiftMask);
    case BPF_RSH:
      return a >> (b & kShiftMask);
    case BPF_ARSH:
      return static_cast<T>(static_cast<std::make_signed_t<T>>(a) >> (b & kShiftMask));
    case BPF_NEG:
      return T{0} - a;
    default:  // BPF_MOV
      return sign_extended(b, instruction.off);
  }
}

template <typename T>
bool comparison(uint8_t operation, T a, T b) {
  using S = std::make_signed_t<T>;
  const auto sa = static_cast<S>(a), sb = static_cast<S>(b);
  switch (operation) {
    case BPF_JEQ:
      return a == b;
    case BPF_JNE:
      return a != b;
    case BPF_JGT:
      return a > b;
    case BPF_JGE:
      return a >= b;
    case BPF_JLT:
      return a < b;
    case BPF_JLE:
      return a <= b;
    case BPF_JSET:
      return (a & b) != 0;
    case BPF_JSGT:
      return sa > sb;
    case BPF_JSGE:
      return sa >= sb;
    case BPF_JSLT:
      return sa < sb;
    case BPF_JSLE:
      return sa <= sb;
    default:  // BPF_JA
      return true;
  }
}

}  // namespace sluice

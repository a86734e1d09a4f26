#include "control/text_table.h"

#include <fmt/format.h>

#include <algorithm>

namespace sluice {
namespace {

size_t columns_of(const std::string& text) {
  // Bytes that continue a letter take no column.
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char letter) { return (static_cast<unsigned char>(letter) & 0xc0) != 0x80; }));
}

std::vector<size_t> column_widths(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.empty() ? 0 : rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], columns_of(row[i]));
  }
  return widths;
}

}  // namespace

std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<bool>& right_aligned, bool with_colour) {
  const std::vector<size_t> widths = column_widths(rows);
  std::string text;
  for (size_t row = 0; row < rows.size(); ++row) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string padding(widths[i] - columns_of(rows[row][i]), ' ');
      line += (right_aligned[i] ? padding + rows[row][i] : rows[row][i] + padding) + "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += row == 0 && with_colour ? fmt::format("\x1b[1m{}\x1b[0m\n", line) : line + "\n";
  }
  return text;
}

}  // namespace sluice

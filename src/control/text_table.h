// Tables for people.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// Rows of equal length as text with aligned columns, the first row as the heading. Columns listed
// in `right_aligned` hold figures. UTF-8: a letter counts as one column.
std::string table_text(const std::vector<std::vector<std::string>>& rows,
                       const std::vector<bool>& right_aligned, bool with_colour);

}  // namespace sluice

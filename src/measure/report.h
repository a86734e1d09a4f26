// What a benchmark has found: rows of before and after beside what a public document says, and the
// rows that could not be run here. As JSON, as a table for a terminal, and as a page with pictures.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "measure/series.h"

namespace sluice {

// A document's own figures, in the row's unit; a gain may be all that it says.
struct DocumentFigures {
  std::optional<double> before;
  std::optional<double> after;
  std::optional<double> gain;  // +0.55 is "+55 %"
};

struct ReportRow {
  std::string label;         // "split rings, frames"
  std::string unit;          // "Mframes/s"
  std::string before_label;  // "inline"
  std::string after_label;   // "napi"
  Series before;             // one figure a round
  Series after;
  bool more_is_better = true;
  std::optional<DocumentFigures> document;
  std::vector<std::string> notes;  // why a gain is not valid, or what was odd
};

// A row that needs what this machine has not.
struct ReportSkip {
  std::string label;
  std::string reason;
};

struct Report {
  std::string name;   // "s4-napi-tx"
  std::string title;  // one line
  std::string setup;  // what ran where, a sentence or two
  std::vector<ReportRow> rows;
  std::vector<ReportSkip> skips;
};

nlohmann::json report_json(const Report& report);
// Aligned columns; `with_colour` for terminals.
std::string report_text(const Report& report, bool with_colour);
// A whole page: a table and a drawing for each report; needs nothing from the network.
std::string report_html(const std::vector<Report>& reports, std::string_view machine);

}  // namespace sluice

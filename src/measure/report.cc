#include "measure/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "control/text_table.h"

namespace sluice {
namespace {

using nlohmann::json;

std::string gain_text(double gain) { return fmt::format("{:+.0f} %", gain * 100); }

std::string number(double value) {
  if (value >= 1000) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  return fmt::format("{:.2f}", value);
}

json series_json(const Series& series) { return {{"median", median(series)}, {"rounds", series}}; }

std::string document_text(const std::optional<DocumentFigures>& document) {
  if (!document) return "";
  std::string text;
  if (document->before && document->after)
    text = fmt::format("{} → {}", number(*document->before), number(*document->after));
  if (document->gain)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", gain_text(*document->gain));
  return text;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

// One bar before and one after, to the scale of the larger, with the rounds as dots on them.
std::string bars(const ReportRow& row) {
  constexpr double kWidth = 420;
  constexpr int kBarHeight = 16, kRowHeight = 22, kLeft = 110;
  double most = 0;
  for (const Series* series : {&row.before, &row.after})
    for (const double value : *series) most = std::max(most, value);
  if (most == 0) return "";
  std::string out = fmt::format("<svg width=\"{}\" height=\"{}\" role=\"img\" aria-label=\"{}\">",
                                kLeft + kWidth + 70, 2 * kRowHeight, escaped(row.label));
  int y = 2;
  const struct {
    const std::string& label;
    const Series& series;
    const char* colour;
  } halves[] = {{row.before_label, row.before, "#9aa5b1"}, {row.after_label, row.after, "#2f855a"}};
  for (const auto& half : halves) {
    const double width = median(half.series) / most * kWidth;
    out += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>"
        "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>"
        "<text x=\"{:.1f}\" y=\"{}\">{}</text>",
        kLeft - 6, y + kBarHeight - 4, escaped(half.label), kLeft, y, width, kBarHeight,
        half.colour, kLeft + width + 6, y + kBarHeight - 4, number(median(half.series)));
    for (const double value : half.series)
      out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{}\" r=\"2.5\" fill=\"#1a202c\"/>",
                         kLeft + value / most * kWidth, y + kBarHeight / 2);
    y += kRowHeight;
  }
  return out + "</svg>";
}

std::string html_row(const ReportRow& row) {
  const Ratio ratio = ratio_of(row.before, row.after);
  std::string notes;
  for (const std::string& note : row.notes) notes += "<br><em>" + escaped(note) + "</em>";
  return fmt::format(
      "<tr><td>{}<br><small>{}</small></td><td>{}</td><td>{}<br><small>{:.2f} to {:.2f} "
      "times</small></td><td>{}</td></tr>\n",
      escaped(row.label), escaped(row.unit), bars(row), gain_text(gain_of(ratio)), ratio.low,
      ratio.high, escaped(document_text(row.document)) + notes);
}

}  // namespace

json report_json(const Report& report) {
  json rows = json::array();
  for (const ReportRow& row : report.rows) {
    const Ratio ratio = ratio_of(row.before, row.after);
    json entry = {{"label", row.label},
                  {"unit", row.unit},
                  {"more_is_better", row.more_is_better},
                  {"before", series_json(row.before)},
                  {"after", series_json(row.after)},
                  {"ratio", {{"value", ratio.value}, {"low", ratio.low}, {"high", ratio.high}}},
                  {"notes", row.notes}};
    entry["before"]["label"] = row.before_label;
    entry["after"]["label"] = row.after_label;
    if (row.document) {
      json document = json::object();
      if (row.document->before) document["before"] = *row.document->before;
      if (row.document->after) document["after"] = *row.document->after;
      if (row.document->gain) document["gain"] = *row.document->gain;
      entry["document"] = document;
    }
    rows.push_back(entry);
  }
  json skips = json::array();
  for (const ReportSkip& skip : report.skips)
    skips.push_back({{"label", skip.label}, {"reason", skip.reason}});
  return {{"name", report.name},
          {"title", report.title},
          {"setup", report.setup},
          {"rows", rows},
          {"skipped", skips}};
}

std::string report_text(const Report& report, bool with_colour) {
  std::vector<std::vector<std::string>> rows = {
      {"", "UNIT", "BEFORE", "AFTER", "GAIN", "ROUNDS", "DOCUMENT"}};
  for (const ReportRow& row : report.rows) {
    const Ratio ratio = ratio_of(row.before, row.after);
    rows.push_back({row.label, row.unit,
                    fmt::format("{} {}", row.before_label, number(median(row.before))),
                    fmt::format("{} {}", row.after_label, number(median(row.after))),
                    gain_text(gain_of(ratio)), fmt::format("{:.2f}–{:.2f}×", ratio.low, ratio.high),
                    document_text(row.document)});
  }
  std::string text = fmt::format("{}: {}\n{}\n\n", report.name, report.title, report.setup);
  text += table_text(rows, {false, false, true, true, true, true, false}, with_colour);
  for (const ReportRow& row : report.rows)
    for (const std::string& note : row.notes) text += fmt::format("! {}: {}\n", row.label, note);
  for (const ReportSkip& skip : report.skips)
    text += fmt::format("skipped: {}: {}\n", skip.label, skip.reason);
  return text;
}

std::string report_html(const std::vector<Report>& reports, std::string_view machine) {
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>sluice "
      "benchmarks</title>\n<style>body{font:15px/1.5 sans-serif;max-width:1100px;margin:2em "
      "auto;color:#1a202c}table{border-collapse:collapse}td,th{padding:.5em .8em;border-bottom:1px "
      "solid #cbd5e0;text-align:left;vertical-align:top}svg text{font:12px "
      "sans-serif}small,em{color:#4a5568}</style></head><body>\n<h1>sluice benchmarks</h1>\n";
  out += fmt::format("<p>{}</p>\n", escaped(machine));
  out +=
      "<p>Both halves of a row alternate in one run. A bar is the median, a dot is a round; the "
      "gain "
      "is the ratio of the medians, below it the smallest and largest ratio of a round.</p>\n";
  for (const Report& report : reports) {
    out += fmt::format(
        "<h2>{}</h2><p>{}<br>{}</p>\n<table><tr><th></th><th></th><th>gain</th>"
        "<th>document</th></tr>\n",
        escaped(report.name), escaped(report.title), escaped(report.setup));
    for (const ReportRow& row : report.rows) out += html_row(row);
    out += "</table>\n";
    for (const ReportSkip& skip : report.skips)
      out += fmt::format("<p>Skipped: {}: {}</p>\n", escaped(skip.label), escaped(skip.reason));
  }
  return out + "</body></html>\n";
}

}  // namespace sluice

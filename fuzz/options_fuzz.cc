// Words of the command line and TOML files of any content: refused or parsed, never a crash. The
// first byte chooses the parser.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "control/options.h"

namespace {

using sluice::RunOptions;

constexpr std::string_view kKinds[] = {"vm", "tap", "macvtap", "null", "connect"};
constexpr size_t kKindCount = sizeof(kKinds) / sizeof(kKinds[0]);

// Each refusal is one line, and an accepted set is checked as a whole.
void judge(const sluice::Result<void>& parsed, const RunOptions& options) {
  if (!parsed) {
    SLUICE_ASSERT(parsed.error().is_usage);
    SLUICE_ASSERT(parsed.error().text.find('\n') == std::string::npos);
    return;
  }
  const auto checked = sluice::check_run_options(options);
  if (!checked) SLUICE_ASSERT(checked.error().text.find('\n') == std::string::npos);
}

// Lists separated by newlines, all of one run.
void parse_lists(size_t first_kind, std::string_view text) {
  RunOptions options;
  for (size_t count = 0; count < 32 && !text.empty(); ++count) {
    const size_t end = text.find('\n');
    const std::string_view list = text.substr(0, end);
    const auto parsed =
        sluice::parse_list_option(kKinds[(first_kind + count) % kKindCount], list, options);
    judge(parsed, options);
    if (!parsed || end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  if (data[0] % 2 == 0) {
    parse_lists(data[0] / 2 % kKindCount, text);
    return 0;
  }
  RunOptions options;
  const auto parsed = sluice::parse_config_text(text, "fuzz.toml", options);
  judge(parsed, options);
  return 0;
}

// `sluice tap`: opens the queues of a TAP as `sluice run` would, and becomes a command that
// inherits them. For users of QEMU's own TAP back end and of vhost_net.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "commands.h"
#include "control/options.h"
#include "port/tap_opener.h"

namespace sluice {
namespace {

constexpr std::string_view kPlaceholder = "{fds}";

constexpr std::string_view kHelp =
    R"(usage: sluice tap NAME,ifname=IF[,key=value]… -- COMMAND … {{fds}} …

Opens the queues of a TAP, with IFF_NAPI where the kernel has it, and executes COMMAND with them
inherited. Each {{fds}} in its arguments becomes the descriptors, such as 3:4:5:6.

A virtual machine with QEMU's own TAP back end (vhost=on: the kernel's vhost_net moves its packets):

    sluice tap t0,ifname=tap0,queues=4 -- \
      qemu-system-x86_64 -m 1G -drive file=disk.img,if=virtio \
        -netdev tap,id=n0,fds={{fds}},vhost=on \
        -device virtio-net-pci,netdev=n0,mq=on,vectors=10

(with one queue too it is fds=, not fd=; vectors is 2 × queues + 2; without /dev/vhost-net: vhost=off)

Keys:
{}
The TAP goes away with the command, unless it was there before or persist=on. One line on standard
error says what was negotiated. Without CAP_NET_ADMIN an existing TAP of this user is needed:
    sudo ip tuntap add tap0 mode tap multi_queue vnet_hdr user $USER
)";

// What is wanted, once the words have been understood.
struct TapRequest {
  TapSpec spec;
  Arguments command;
};

NapiChoice napi_choice(NapiMode mode) {
  switch (mode) {
    case NapiMode::on:
      return NapiChoice::on;
    case NapiMode::off:
      return NapiChoice::off;
    case NapiMode::automatic:
      return NapiChoice::automatic;
  }
  return NapiChoice::automatic;
}

Result<TapRequest> parse(const Arguments& arguments) {
  const auto separator = std::ranges::find(arguments, "--");
  if (separator == arguments.begin())
    return usage_failure("no NAME,ifname=IF is given: sluice tap t0,ifname=tap0 -- COMMAND {}",
                         kPlaceholder);
  if (separator == arguments.end())
    return usage_failure("no command is given: add -- COMMAND … {} … after the options",
                         kPlaceholder);
  if (separator - arguments.begin() != 1)
    return usage_failure("'{}' is one word too many: before -- there is only NAME,ifname=IF,…",
                         arguments[1]);
  TapRequest request;
  request.command.assign(separator + 1, arguments.end());
  if (request.command.empty())
    return usage_failure("no command follows --: add COMMAND … {} …", kPlaceholder);
  const auto names_descriptors = [](const std::string& word) {
    return word.find(kPlaceholder) != std::string::npos;
  };
  if (std::none_of(request.command.begin() + 1, request.command.end(), names_descriptors))
    return usage_failure(
        "no argument of {} has {} in it: write it where the command takes its "
        "descriptors, such as -netdev tap,id=n0,fds={}",
        request.command[0], kPlaceholder, kPlaceholder);
  Result<TapOptions> options = parse_tap_list("tap", arguments[0]);
  if (!options) return options.error();
  if (!options->fds.empty())
    return usage_failure("fd=: this command opens descriptors, it takes none: give ifname=");
  request.spec = TapSpec{.name = options->name,
                         .ifname = options->ifname,
                         .fds = {},
                         .queues = options->queues,
                         .napi = napi_choice(options->napi),
                         .netns = options->netns,
                         .persist = options->persist,
                         .bridge = options->bridge,
                         .mtu = options->mtu_bytes.value_or(0),
                         // The command sets the size that it wants.
                         .header_bytes = 0};
  return request;
}

// Looked up as execvp would, so that a misspelt command makes no TAP.
bool can_execute(const std::string& command) {
  if (command.find('/') != std::string::npos) return ::access(command.c_str(), X_OK) == 0;
  const char* const path = std::getenv("PATH");
  std::string_view rest = path != nullptr ? path : "/bin:/usr/bin";
  for (;;) {  // bounded by the colons in PATH
    const size_t colon = rest.find(':');
    const std::string_view folder = rest.substr(0, colon);
    const std::string file = fmt::format("{}{}{}", folder, folder.empty() ? "" : "/", command);
    if (::access(file.c_str(), X_OK) == 0) return true;
    if (colon == std::string_view::npos) return false;
    rest.remove_prefix(colon + 1);
  }
}

void replace_all(std::string& text, std::string_view what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

Failure execute(TapRequest& request, const TapHandles& handles) {
  std::vector<int> numbers;
  for (const Fd& fd : handles.queues) {
    if (::fcntl(fd.get(), F_SETFD, 0) != 0)
      return fail("descriptor {} cannot be inherited: {}", fd.get(), errno_text(errno));
    numbers.push_back(fd.get());
  }
  const std::string list = fmt::format("{}", fmt::join(numbers, ":"));
  std::vector<char*> words;
  for (std::string& word : request.command) {
    if (words.size() > 0) replace_all(word, kPlaceholder, list);
    words.push_back(word.data());
  }
  words.push_back(nullptr);
  ::execvp(words[0], words.data());
  return fail("cannot execute {}: {}", request.command[0], errno_text(errno));
}

}  // namespace

int cmd_tap(const Arguments& arguments) {
  if (!arguments.empty() && (arguments[0] == "--help" || arguments[0] == "-h")) {
    fmt::print(kHelp, list_help_text("tap"));
    return kExitFine;
  }
  Result<TapRequest> request = parse(arguments);
  if (!request) return report_failure("tap", request.error());
  if (!can_execute(request->command[0]))
    return report_failure(
        "tap", fail("there is no command {}: check its name and PATH", request->command[0]));
  Result<TapHandles> handles = open_tap(request->spec);
  if (!handles) return report_failure("tap", handles.error());
  fmt::print(stderr, "sluice tap: {}\n", handles->describe());
  std::fflush(stderr);
  return report_failure("tap", execute(*request, *handles));
}

}  // namespace sluice

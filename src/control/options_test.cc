#include "control/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "control/option_schema.h"
#include "control/qemu_help.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

using Arguments = std::vector<std::string>;

constexpr const char* kVm = "vm0,socket=/run/sluice/vm0.sock";
constexpr const char* kTap = "t0,ifname=tap0";

RunOptions parsed(const Arguments& arguments) {
  const Result<RunRequest> request = parse_run_arguments(arguments);
  EXPECT_TRUE(request) << (request ? "" : request.error().text);
  return request ? request->options : RunOptions{};
}

RunOptions parsed_toml(std::string_view text) {
  RunOptions options;
  const Result<void> result = parse_config_text(text, "sluice.toml", options);
  EXPECT_TRUE(result) << (result ? "" : result.error().text);
  return options;
}

struct BadArguments {
  Arguments arguments;
  std::vector<std::string> words;  // each must be in the message
};

const std::string vm = kVm;
const std::string tap = kTap;
const std::string long_path = "/" + std::string(107, 'x');

const BadArguments kBadArguments[] = {
    {{}, {"no ports", "--vm"}},
    {{"stray"}, {"stray"}},
    {{"--frobnicate"}, {"--frobnicate", "--help"}},
    {{"--cups", "1"}, {"--cups", "did you mean '--cpus'"}},
    {{"--vm"}, {"--vm", "no value"}},
    {{"--vm", ""}, {"--vm", "name"}},
    {{"--vm", "vm0"}, {"--vm vm0", "socket="}},
    {{"--vm", "socket=/x"}, {"--vm socket=/x", "name comes first", "--vm vm0"}},
    {{"--vm", "-x,socket=/x"}, {"--vm", "-x", "1 to 32"}},
    {{"--vm", "a:b,socket=/x"}, {"a:b", "1 to 32"}},
    {{"--vm", vm + ",colour=red"}, {"--vm vm0", "colour", "socket, mode, queues"}},
    {{"--vm", vm + ",queus=2"}, {"queus", "did you mean 'queues'"}},
    {{"--vm", vm + ",queues"}, {"queues", "no value"}},
    {{"--vm", vm + ",queues="}, {"queues=", "from 1 to 128"}},
    {{"--vm", vm + ",queues=0"}, {"queues=0", "from 1 to 128"}},
    {{"--vm", vm + ",queues=129"}, {"queues=129", "from 1 to 128"}},
    {{"--vm", vm + ",queues=-1"}, {"queues=-1", "from 1 to 128"}},
    {{"--vm", vm + ",queues=0x2"}, {"queues=0x2", "from 1 to 128"}},
    {{"--vm", vm + ",queues=99999999999999999999"}, {"queues=9999", "from 1 to 128"}},
    {{"--vm", vm + ",queues=2,queues=3"}, {"queues=3", "twice"}},
    {{"--vm", vm + ","}, {"--vm vm0", "unknown key ''"}},
    {{"--vm", vm + ",mode=sever"}, {"mode=sever", "server, client", "did you mean 'server'"}},
    {{"--vm", vm + ",mac=red"}, {"mac=red", "52:54:00:12:34:56"}},
    {{"--vm", vm + ",mac=01:00:00:00:00:01"}, {"mac=01:00:00:00:00:01", "unicast"}},
    {{"--vm", vm + ",mac=00:00:00:00:00:00"}, {"mac=00:00:00:00:00:00"}},
    {{"--vm", vm + ",mac=52-54-00-12-34-56"}, {"mac=52-54-00-12-34-56"}},
    {{"--vm", vm + ",mtu=67"}, {"mtu=67", "68 to 65535"}},
    {{"--vm", vm + ",mtu=65536"}, {"mtu=65536", "68 to 65535"}},
    {{"--vm", vm + ",socket-mode=888"}, {"socket-mode=888", "octal"}},
    {{"--vm", vm + ",socket-mode=1777"}, {"socket-mode=1777", "octal"}},
    {{"--vm", vm + ",offload=maybe"}, {"offload=maybe", "on, off"}},
    {{"--vm", vm + ",packed=maybe"}, {"packed=maybe", "on, off"}},
    {{"--vm", vm + ",rss=1"}, {"rss=1", "on, off"}},
    {{"--vm", "vm0,socket="}, {"socket=", "1 to 107 bytes"}},
    {{"--vm", "vm0,socket=" + long_path}, {"socket=/xxx", "107 bytes", "has 108"}},
    {{"--vm", "vm0,socket=/a\nb"}, {"socket=/a\\x0ab"}},
    {{"--tap", "t0"}, {"--tap t0", "ifname="}},
    {{"--tap", tap + ",io=uring"}, {"io"}},
    {{"--tap", tap + ",gro=off"}, {"gro"}},
    {{"--tap", tap + ",napi=yes"}, {"napi=yes", "auto, on, off"}},
    {{"--tap", tap + ",fd=7"}, {"ifname=tap0", "fd=7", "exclude"}},
    {{"--tap", "t0,fd=x"}, {"fd=x"}},
    {{"--tap", "t0,fd=1"}, {"fd=1", "from 3 on"}},
    {{"--tap", "t0,fd=5:5"}, {"fd=5:5", "each once"}},
    {{"--tap", "t0,fd=5:6,queues=3"}, {"queues=3", "fd=5:6", "names 2"}},
    {{"--tap", "t0,fd=5:6,queues=1"}, {"queues=1", "fd=5:6", "names 2"}},
    {{"--tap", "t0,fd=5,napi=on"}, {"napi=on", "fd=5", "auto"}},
    {{"--tap", "t0,fd=5,netns=blue"}, {"netns=blue", "fd=5"}},
    {{"--tap", "t0,ifname=sixteen_letters_"}, {"ifname=sixteen_letters_", "1 to 15"}},
    {{"--tap", "t0,ifname=a/b"}, {"ifname=a/b", "'/'"}},
    {{"--tap", "t0,ifname=tap%d"}, {"ifname=tap%d"}},
    {{"--tap", tap + ",bridge=a/b"}, {"bridge=a/b"}},
    {{"--tap", tap + ",mtu=65522"}, {"mtu=65522", "65521"}},
    {{"--macvtap", "m0"}, {"--macvtap m0", "ifname="}},
    {{"--macvtap", "m0,ifname=m,napi=on"}, {"napi", "ifname, queues, netns"}},
    {{"--null", "n0,queues=1"}, {"--null n0", "queues", "none"}},
    {{"--vm", vm, "--tap", "vm0,ifname=tap0"}, {"--tap vm0", "name vm0", "--vm vm0"}},
    {{"--vm", vm, "--vm", "vm1" + vm.substr(3)}, {"socket", "--vm vm1", "--vm vm0"}},
    {{"--tap", tap, "--tap", "t1,ifname=tap0"}, {"tap0", "--tap t1", "--tap t0"}},
    {{"--tap", tap, "--macvtap", "m0,ifname=tap0"}, {"tap0", "--macvtap m0", "--tap t0"}},
    {{"--tap", "t0,fd=5", "--tap", "t1,fd=5"}, {"fd 5", "--tap t1", "--tap t0"}},
    {{"--vm", vm, "--connect", "vm0"}, {"--connect vm0", "A:B"}},
    {{"--vm", vm, "--tap", tap, "--connect", "vm0:to"}, {"to", "did you mean 't0'", "vm0, t0"}},
    {{"--vm", vm, "--connect", "vm0:vm0"}, {"--connect vm0:vm0", "itself"}},
    {{"--vm", vm, "--null", "a", "--null", "b", "--connect", "vm0:a", "--connect", "b:vm0"},
     {"--connect b:vm0", "vm0", "--connect vm0:a"}},
    {{"--vm", vm, "--control", "/run/sluice/vm0.sock"}, {"socket=/run/sluice/vm0.sock", "control"}},
    {{"--vm", vm, "--control", ""}, {"--control"}},
    {{"--vm", vm, "--batch", "0"}, {"--batch=0", "1 to 64"}},
    {{"--vm", vm, "--batch", "65"}, {"--batch=65", "1 to 64"}},
    {{"--vm", vm, "--batch", "1", "--batch", "2"}, {"--batch", "twice"}},
    {{"--vm", vm, "--poll-us", "-5"}, {"--poll-us=-5", "0 to 1000000"}},
    {{"--vm", vm, "--poll-us", "1000001"}, {"--poll-us=1000001"}},
    {{"--vm", vm, "--workers", "0"}, {"--workers=0"}},
    {{"--vm", vm, "--cpus", "red"}, {"--cpus=red"}},
    {{"--vm", vm, "--cpus", "3-1"}, {"--cpus=3-1"}},
    {{"--vm", vm, "--cpus", "0,0"}, {"--cpus=0,0", "each once"}},
    {{"--vm", vm, "--cpus", "1024"}, {"--cpus=1024", "1023"}},
    {{"--vm", vm, "--xdp", "vm0"}, {"--xdp vm0", "object=FILE"}},
    {{"--vm", vm, "--xdp", "vm1,object=x.o"}, {"--xdp vm1", "no port vm1", "vm0"}},
    {{"--vm", vm, "--xdp", "vm0,object=x.o", "--xdp", "vm0,object=y.o"}, {"vm0", "already"}},
    {{"--vm", vm, "--xdp-unverified", "run"}, {"xdp-unverified", "refuse, interpret"}},
    {{"--vm", vm, "--switch", "s=vm0,t0"}, {"--switch"}},
    {{"--afxdp", "x,ifname=lo"}, {"--afxdp"}},
    {{"--nic", "x"}, {"--nic x", "socket="}},
    {{"--nic", "x,socket=/y,tx=later"}, {"tx=later", "napi, inline"}},
    {{"--nic", "x,socket=/y,ring-size=100"}, {"ring-size=100", "power of two"}},
    {{"--nic", "x,socket=/y,ring-size=1"}, {"ring-size=1", "from 2 to 32768"}},
    {{"--nic", "x,socket=/y,queues=0"}, {"queues=0", "from 1 to 128"}},
    {{"--vm", vm, "--metrics", "127.0.0.1:1"}, {"--metrics"}},
    {{"--vm", vm, "--user", "nobody"}, {"--user"}},
    {{"--config", "/nonexistent.toml"}, {"--config /nonexistent.toml", "No such file"}},
    {{"--config", "/"}, {"--config /", "directory"}},
};

TEST(Options, RefuseWhatIsWrongInOneLineThatNamesIt) {
  for (const BadArguments& bad : kBadArguments) {
    SCOPED_TRACE(fmt::format("{}", fmt::join(bad.arguments, " ")));
    const Result<RunRequest> request = parse_run_arguments(bad.arguments);
    ASSERT_FALSE(request);
    EXPECT_TRUE(request.error().is_usage);
    EXPECT_THAT(request.error().text, Not(HasSubstr("\n")));
    for (const std::string& word : bad.words) EXPECT_THAT(request.error().text, HasSubstr(word));
  }
}

struct BadToml {
  std::string_view text;
  std::vector<std::string> words;
};

TEST(Options, RefuseAFileThatIsWrongWithItsLine) {
  const BadToml table[] = {
      {"] \u031c", {"sluice.toml line 1", "TOML"}},
      {"[[\nvm]]", {"sluice.toml", "TOML"}},
      {"[[vm]", {"sluice.toml line 1", "TOML"}},
      {"\nbatch = 65", {"sluice.toml line 2", "batch=65", "1 to 64"}},
      {"batch = [1]", {"batch", "1 to 64"}},
      {"batch = 1.5", {"batch", "1 to 64"}},
      {"poll_us = 5", {"poll_us", "did you mean 'poll-us'"}},
      {"afxdp = 1", {"unknown key 'afxdp'", "vm, tap"}},
      {"hugepages = \"yes\"", {"hugepages=yes", "on or off"}},
      {"vm = 3", {"vm", "[[vm]]"}},
      {"[vm]\nname = \"vm0\"", {"line 1", "[[vm]]"}},
      {"[[vm]]\nsocket = \"/x\"", {"line 1", "[[vm]]", "name"}},
      {"[[vm]]\nname = 3", {"[[vm]]", "name"}},
      {"[[vm]]\nname = \"a b\"", {"[[vm]]", "a b", "1 to 32"}},
      {"[[vm]]\nname = \"vm0\"", {"line 1: [[vm]] vm0", "socket="}},
      {"[[vm]]\nname = \"v\"\nsocket = \"/x\"\nqueus = 2", {"[[vm]] v", "did you mean 'queues'"}},
      {"[[vm]]\nname = \"v\"\nsocket = \"/x\"\nqueues = -1", {"queues=-1", "1 to 128"}},
      {"[[vm]]\nname = \"v\"\nsocket = {a = 1}", {"socket", "107"}},
      {"[[tap]]\nname = \"t\"\nfd = [3, [4]]", {"[[tap]] t", "fd"}},
      {"[[tap]]\nname = \"t\"\nfd = [3, 3]", {"fd=3:3", "each once"}},
      {"connect = \"a:b\"", {"connect", "[\"vm0:t0\"]"}},
      {"connect = [3]", {"connect", "\"A:B\""}},
      {"[[connect]]\na = \"x\"", {"connect", "\"A:B\""}},
      {"[[connect]]\na = \"x\"\nb = \"y\"\nc = \"z\"", {"connect"}},
      {"[[connect]]\na = \"x:y\"\nb = \"z\"", {"[[connect]] x:y:z"}},
  };
  for (const BadToml& bad : table) {
    SCOPED_TRACE(bad.text);
    RunOptions options;
    const Result<void> result = parse_config_text(bad.text, "sluice.toml", options);
    ASSERT_FALSE(result);
    EXPECT_TRUE(result.error().is_usage);
    EXPECT_THAT(result.error().text, Not(HasSubstr("\n")));
    for (const std::string& word : bad.words) EXPECT_THAT(result.error().text, HasSubstr(word));
  }
}

TEST(Options, RefuseAFileThatIsTooLarge) {
  RunOptions options;
  EXPECT_FALSE(parse_config_text(std::string(1024 * 1024 + 1, '#'), "big.toml", options));
}

constexpr std::string_view kEveryKey = R"(
    batch = 32
    poll-us = 0
    workers = 2
    cpus = [0, "2-3"]
    control = "/c"
    hugepages = true
    verbose = true
    [[vm]]
    name = "vm0"
    socket = "/a"
    mode = "client"
    queues = 4
    mac = "52:54:00:00:00:07"
    mtu = 9000
    [[vm]]
    name = "vm1"
    socket = "/b"
    socket-mode = 0o600
    socket-group = "kvm"
    offload = false
    [[tap]]
    name = "t0"
    ifname = "tap0"
    queues = 2
    napi = "off"
    netns = "blue"
    persist = true
    bridge = "br0"
    mtu = 1400
    [[tap]]
    name = "t1"
    fd = [5, 6]
    [[macvtap]]
    name = "m0"
    ifname = "mv0"
    queues = 2
    netns = "red"
    [[null]]
    name = "n0"
    [[connect]]
    a = "vm0"
    b = "t0"
    [[connect]]
    a = "vm1"
    b = "m0"
)";

TEST(Options, OfCommandLineAndFileAreTheSame) {
  const RunOptions from_words = parsed(
      {"--vm",        "vm0,socket=/a,mode=client,queues=4,mac=52:54:00:00:00:07,mtu=9000",
       "--vm",        "vm1,socket=/b,socket-mode=0600,socket-group=kvm,offload=off",
       "--tap",       "t0,ifname=tap0,queues=2,napi=off,netns=blue,persist=on,bridge=br0,mtu=1400",
       "--tap",       "t1,fd=5:6",
       "--macvtap",   "m0,ifname=mv0,queues=2,netns=red",
       "--null",      "n0",
       "--connect",   "vm0:t0",
       "--connect",   "vm1:m0",
       "--batch",     "32",
       "--poll-us",   "0",
       "--workers",   "2",
       "--cpus",      "0,2-3",
       "--control",   "/c",
       "--hugepages", "-v"});
  const RunOptions from_file = parsed_toml(kEveryKey);
  EXPECT_EQ(from_words, from_file);
  EXPECT_EQ(from_words.vms[0].side, SocketSide::client);
  EXPECT_EQ(from_words.vms[0].mac, (MacAddress{0x52, 0x54, 0, 0, 0, 7}));
  EXPECT_EQ(from_words.vms[1].socket_mode, 0600u);
  EXPECT_FALSE(from_words.vms[1].offload);
  EXPECT_EQ(from_words.taps[1].fds, (std::vector<int>{5, 6}));
  EXPECT_EQ(from_words.taps[1].queues, 2u);
  EXPECT_EQ(from_words.cpus, (std::vector<int>{0, 2, 3}));
}

TEST(Options, OfTheCommandLineWinOverTheFileAndAddToIt) {
  const std::string path = testing::TempDir() + "/sluice_options_test.toml";
  std::ofstream(path) << "batch = 8\nworkers = 3\nconnect = [\"vm0:t0\"]\n"
                         "[[vm]]\nname = \"vm0\"\nsocket = \"/a\"\n";
  const RunOptions options = parsed({"--batch", "16", "--tap", kTap, "--config", path});
  std::remove(path.c_str());
  EXPECT_EQ(options.batch_frames, 16u);
  EXPECT_EQ(options.workers, 3u);
  EXPECT_THAT(options.vms, SizeIs(1));
  EXPECT_THAT(options.taps, SizeIs(1));
  EXPECT_THAT(options.connections, SizeIs(1));
}

TEST(Options, HaveTheirDefaults) {
  const RunOptions options = parsed({"--vm", kVm, "--tap", kTap, "--connect", "vm0:t0"});
  EXPECT_EQ(options.batch_frames, 64u);
  EXPECT_EQ(options.poll_us, 50u);
  EXPECT_EQ(options.workers, 1u);
  EXPECT_EQ(options.control_path, "/run/sluice/control.sock");
  EXPECT_EQ(options.vms[0].socket_mode, 0660u);
  EXPECT_EQ(options.vms[0].side, SocketSide::server);
  EXPECT_EQ(options.taps[0].queues, 1u);
}

TEST(Options, TakeACommaInAValueWhenItIsWrittenTwice) {
  EXPECT_EQ(parsed({"--vm", "vm0,socket=/a,,b,queues=2"}).vms[0].socket_path, "/a,b");
  EXPECT_EQ(parsed({"--vm", "vm0,queues=2,socket=/a,,"}).vms[0].socket_path, "/a,");
}

TEST(Options, TakeTheSameInterfaceNameInTwoNamespaces) {
  EXPECT_THAT(parsed({"--tap", "t0,ifname=tap0", "--tap", "t1,ifname=tap0,netns=blue"}).taps,
              SizeIs(2));
}

TEST(Options, WarnOfAPortWithoutACableOnly) {
  const Result<RunRequest> request =
      parse_run_arguments({"--vm", kVm, "--tap", kTap, "--tap", "t1,ifname=tap1", "--null", "n",
                           "--connect", "vm0:t0"});
  ASSERT_TRUE(request);
  ASSERT_THAT(request->warnings, SizeIs(1));
  EXPECT_THAT(request->warnings[0], AllOf(HasSubstr("t1"), HasSubstr("--connect")));
}

TEST(Options, AskForHelpWhateverElseIsWrong) {
  const Result<RunRequest> request = parse_run_arguments({"--frobnicate", "--help"});
  ASSERT_TRUE(request);
  EXPECT_TRUE(request->wants_help);
}

TEST(Options, OfTapAreParsedForOtherCommandsUnderTheirName) {
  const Result<TapOptions> good = parse_tap_list("sluice tap", "t0,ifname=tap0,queues=4,napi=on");
  ASSERT_TRUE(good);
  EXPECT_EQ(good->queues, 4u);
  const Result<TapOptions> bad = parse_tap_list("sluice tap", "t0,ifname=tap0,queues=x");
  ASSERT_FALSE(bad);
  EXPECT_THAT(bad.error().text, HasSubstr("sluice tap t0: queues=x"));
}

TEST(HelpText, NamesEveryOptionAndKeyAfterTheExamples) {
  const std::string text = run_help_text();
  EXPECT_LT(text.find("sluice run --vm"), text.find("--batch"));
  for (const ListSchema& list : list_schemas()) {
    EXPECT_THAT(text, HasSubstr("--" + std::string(list.name)));
    for (const KeySchema& key : list.keys)
      EXPECT_THAT(text, HasSubstr(std::string(key.name) + "="));
  }
  for (const KeySchema& value : value_schemas()) {
    EXPECT_THAT(text, HasSubstr("--" + std::string(value.name)));
  }
}

TEST(QemuHelp, MirrorsTheSideOfTheSocketAndNamesWhatWasGiven) {
  const RunOptions options =
      parsed({"--vm", "a,socket=/a,,b&c,queues=4,mac=52:54:00:00:00:07,mtu=9000", "--vm",
              "b,socket=/b,mode=client"});
  EXPECT_THAT(qemu_help_text(options.vms[0]),
              AllOf(HasSubstr("path=/a,,b&c,server=off,reconnect=1"), HasSubstr("queues=4"),
                    HasSubstr("mq=on,vectors=10"), HasSubstr("mac=52:54:00:00:00:07"),
                    HasSubstr("host_mtu=9000"), HasSubstr("share=on"), HasSubstr("vectors=0"),
                    HasSubstr("path='/a,b&amp;c' mode='client'"), HasSubstr("queues='4'"),
                    HasSubstr("<mtu size='9000'/>")));
  EXPECT_THAT(
      qemu_help_text(options.vms[1]),
      AllOf(HasSubstr("path=/b,server=on"), HasSubstr("mode='server'/>"),
            Not(HasSubstr("reconnect")), Not(HasSubstr("queues=")), Not(HasSubstr("<mac"))));
}

TEST(DidYouMean, SuggestsWhatIsNearAndNothingElse) {
  const std::string_view words[] = {"queues", "socket", "mac"};
  EXPECT_THAT(did_you_mean("queue", words), HasSubstr("queues"));
  EXPECT_THAT(did_you_mean("sokcet", words), HasSubstr("socket"));
  EXPECT_THAT(did_you_mean("xyz", words), IsEmpty());
  EXPECT_THAT(did_you_mean("", words), IsEmpty());
  EXPECT_THAT(did_you_mean(std::string(10'000, 'q'), words), IsEmpty());
}

}  // namespace
}  // namespace sluice

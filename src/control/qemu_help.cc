#include "control/qemu_help.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace sluice {
namespace {

std::string mac_text(const MacAddress& mac) { return fmt::format("{:02x}", fmt::join(mac, ":")); }

// QEMU's own rule for a comma in a value.
std::string qemu_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    out += c;
    if (c == ',') out += ',';
  }
  return out;
}

// For a POSIX shell, quoted only when something in it needs that.
std::string shell_quoted(const std::string& text) {
  const bool is_plain = text.find_first_not_of(
                            "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                            "0123456789_-./,=:+") == std::string::npos;
  if (is_plain) return text;
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string xml_escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '\'':
        out += "&apos;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string chardev(const VmOptions& vm) {
  const std::string side = vm.side == SocketSide::server ? "server=off,reconnect=1" : "server=on";
  return shell_quoted(
      fmt::format("socket,id=chr-{},path={},{}", vm.name, qemu_escaped(vm.socket_path), side));
}

std::string netdev(const VmOptions& vm) {
  std::string text = fmt::format("vhost-user,id=net-{},chardev=chr-{}", vm.name, vm.name);
  if (vm.queue_pairs > 1) text += fmt::format(",queues={}", vm.queue_pairs);
  return text;
}

std::string device(const VmOptions& vm) {
  std::string text = fmt::format("virtio-net-pci,netdev=net-{}", vm.name);
  if (vm.mac) text += ",mac=" + mac_text(*vm.mac);
  // A vector for each ring, one for the control queue, one for configuration changes.
  if (vm.queue_pairs > 1) text += fmt::format(",mq=on,vectors={}", 2 * vm.queue_pairs + 2);
  if (vm.mtu_bytes) text += fmt::format(",host_mtu={}", *vm.mtu_bytes);
  return text + ",rx_queue_size=1024,tx_queue_size=1024";
}

std::string qemu_arguments(const VmOptions& vm) {
  return fmt::format(
      "QEMU, beside the arguments that the machine has already (size= is that of -m):\n\n"
      "  -m 1G \\\n"
      "  -object memory-backend-memfd,id=mem,size=1G,share=on \\\n"
      "  -machine memory-backend=mem \\\n"
      "  -chardev {} \\\n"
      "  -netdev {} \\\n"
      "  -device {}\n\n"
      "  share=on is what lets sluice reach the guest's frames; without it nothing works.\n"
      "  QEMU 7.2 without KVM (accel=tcg): end -device with vectors=0, or QEMU crashes.\n"
      "  QEMU warns that it does not support PROTOCOL_F_CONFIG: that is harmless.\n{}",
      chardev(vm), netdev(vm), device(vm),
      vm.side == SocketSide::server
          ? "  reconnect=1 lets the guest survive a restart of sluice; QEMU 9.2 and later prefer\n"
            "  reconnect-ms=1000 for the same.\n"
          : "  QEMU listens and waits for sluice, which connects by itself and again after a "
            "restart.\n");
}

std::string libvirt_xml(const VmOptions& vm) {
  const bool is_server = vm.side == SocketSide::server;
  std::string text =
      "libvirt, in <domain>:\n\n"
      "  <memoryBacking>\n"
      "    <source type='memfd'/>\n"
      "    <access mode='shared'/>\n"
      "  </memoryBacking>\n\n"
      "and in <devices>:\n\n"
      "  <interface type='vhostuser'>\n";
  if (vm.mac) text += fmt::format("    <mac address='{}'/>\n", mac_text(*vm.mac));
  text +=
      fmt::format("    <source type='unix' path='{}' mode='{}'{}\n", xml_escaped(vm.socket_path),
                  is_server ? "client" : "server", is_server ? ">" : "/>");
  if (is_server) text += "      <reconnect enabled='yes' timeout='1'/>\n    </source>\n";
  text += "    <model type='virtio'/>\n";
  text += vm.queue_pairs > 1
              ? fmt::format("    <driver queues='{}' rx_queue_size='1024' tx_queue_size='1024'/>\n",
                            vm.queue_pairs)
              : "    <driver rx_queue_size='1024' tx_queue_size='1024'/>\n";
  if (vm.mtu_bytes) text += fmt::format("    <mtu size='{}'/>\n", *vm.mtu_bytes);
  return text + "  </interface>\n";
}

}  // namespace

std::string qemu_help_text(const VmOptions& vm) {
  return fmt::format("VM port {}: {} {}\n\n{}\n{}", vm.name,
                     vm.side == SocketSide::server ? "sluice listens on" : "sluice connects to",
                     vm.socket_path, qemu_arguments(vm), libvirt_xml(vm));
}

}  // namespace sluice

"""A QEMU guest in software emulation: Debian's kernel, a busybox initramfs, one network device.

The device is a vhost-user one on a socket, or QEMU's own on the TAP queues that `sluice tap` opened:

    guest = Qemu(env, VhostUser(env.path("vm0.sock"), queues=2))
    guest = Qemu(env, SluiceTap("t0,ifname=tap0,napi=on"), ns=ns)
    guest.configure(ipv4="10.0.0.2/24")
    guest.run("ping -c 3 10.0.0.1")

There is no KVM in this, and QEMU 7.2 without KVM crashes with vhost-user and MSI-X: hence vectors=0.
The console goes to a log, commands go over the second serial port (console.py).
"""

import collections
import os
import shutil
import socket

from lib.console import Guest
from lib.initramfs import Missing, build_initramfs

QEMU = "qemu-system-x86_64"
BOOT_SECONDS_MAX = 100

VhostUser = collections.namedtuple("VhostUser", "socket queues options", defaults=(1, ""))
SluiceTap = collections.namedtuple("SluiceTap", "spec queues options", defaults=(1, ""))


def netdev_arguments(link):
    """QEMU's arguments for the network back end."""
    if isinstance(link, VhostUser):
        return ["-chardev", f"socket,id=c0,path={link.socket}{link.options}",
                "-netdev", f"vhost-user,id=n0,chardev=c0,queues={link.queues}"]
    # `sluice tap` puts the numbers of the queues' descriptors where {fds} stands.
    return ["-netdev", f"tap,id=n0,fds={{fds}},vhost=off{link.options}"]


class Qemu(Guest):
    def __init__(self, env, link, ns=None, mac="52:54:00:00:00:02", memory_mib=256, cpus=None,
                 device_options="", name=None, boot_seconds=BOOT_SECONDS_MAX):
        super().__init__(env, name or env.unique("qemu"))
        if not shutil.which(QEMU):
            env.skip("no QEMU here: install qemu-system-x86")
        try:
            kernel, initramfs = build_initramfs()
        except Missing as missing:
            env.skip(str(missing))
        self.console_path = env.add_log(env.path(self.name + ".console"))
        listener, channel_path = self._listen()
        multi_queue = ",mq=on" if link.queues > 1 else ""
        argv = [QEMU, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
                "-machine", "q35,accel=tcg,memory-backend=m0", "-m", str(memory_mib),
                "-smp", str(cpus or link.queues),
                "-object", f"memory-backend-memfd,id=m0,size={memory_mib}M,share=on",
                "-kernel", kernel, "-initrd", initramfs, "-append",
                "console=ttyS0 panic=-1 quiet net.ifnames=0 sluice_guest=qemu",
                "-chardev", f"file,id=console,path={self.console_path}", "-serial", "chardev:console",
                "-chardev", f"socket,id=agent,path={channel_path}", "-serial", "chardev:agent",
                *netdev_arguments(link), "-device",
                f"virtio-net-pci,netdev=n0,mac={mac},romfile=,vectors=0{multi_queue}{device_options}"]
        if isinstance(link, SluiceTap):
            argv = [env.sluice, "tap", link.spec, "--", *argv]
        self.process = (ns or env).popen(argv, name=self.name + "-")
        env.defer(self.kill)
        self._accept(listener)
        self._wait_ready(boot_seconds)

    def _listen(self):
        path = self.env.path(self.name + ".agent")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(1)
        return listener, path

    def _accept(self, listener):
        """Waits until QEMU connects the second serial port; a QEMU that ended says why."""
        listener.settimeout(0.2)
        with listener:
            for _ in range(100):
                try:
                    connection, _ = listener.accept()
                    self._read_fd = self._write_fd = connection.detach()
                    os.set_blocking(self._read_fd, True)
                    return
                except TimeoutError:
                    if self.process.poll() is not None:
                        break
        with open(self.process.log_path, errors="replace") as log:
            raise AssertionError(f"guest {self.name}: QEMU did not start: {log.read()[-1500:]}")

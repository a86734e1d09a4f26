"""A network namespace of its own for a test: traffic never leaves it.

It is named `slt-<pid of the runner>-<n>`, has its loopback up, and is deleted when the test ends.
IPv6 address generation can be turned off, so that a TAP stays silent and frame counts are exact.

    ns = Netns(env, ipv6=False)
    ns.run(["ip", "link", "set", "tap0", "up"])
    server = ns.popen(["iperf3", "-s"])
    assert ns.counters("tap0")["rx_packets"] == 0
"""

import json
import os
import subprocess

_created = 0


class Netns:
    def __init__(self, env, ipv6=True):
        global _created
        if os.geteuid() != 0:
            env.skip("network namespaces need root")
        _created += 1
        self.env = env
        self.name = f"slt-{os.getpid()}-{_created}"
        env.run(["ip", "netns", "add", self.name])
        env.defer(self._delete)
        self.run(["ip", "link", "set", "lo", "up"])
        if not ipv6:
            self.sysctl("net.ipv6.conf.all.disable_ipv6", 1)
            self.sysctl("net.ipv6.conf.default.disable_ipv6", 1)

    def _delete(self):
        subprocess.run(["ip", "netns", "del", self.name], check=False, timeout=20,
                       stdin=subprocess.DEVNULL, capture_output=True)

    def argv(self, argv):
        """The command as it is run inside; `ip netns exec` replaces itself, so the pid stays."""
        return ["ip", "netns", "exec", self.name, *argv]

    def run(self, argv, check=True, timeout=30, **options):
        return self.env.run(self.argv(argv), check=check, timeout=timeout, **options)

    def popen(self, argv, name=None, **options):
        """Starts a process inside, ended (by its id) with the test; output in .log_path."""
        name = name or os.path.basename(argv[0]) + "-"
        return self.env.popen(self.argv(argv), name=name, **options)

    def sysctl(self, key, value):
        path = "/proc/sys/" + key.replace(".", "/")
        self.run(["sh", "-c", f"[ ! -e {path} ] || echo {value} > {path}"])

    def has_link(self, name):
        return self.run(["ip", "link", "show", "dev", name], check=False).returncode == 0

    def link(self, name):
        """What `ip -s -d -j link show` says, as a dictionary."""
        text = self.run(["ip", "-s", "-d", "-j", "link", "show", "dev", name]).stdout
        return json.loads(text)[0]

    def counters(self, name):
        """The kernel's counters of an interface, drops included, as {name: number}."""
        script = f'cd /sys/class/net/{name}/statistics && for f in *; do echo "$f $(cat $f)"; done'
        lines = self.run(["sh", "-c", script]).stdout.split("\n")
        return {key: int(value) for key, value in (line.split() for line in lines if line)}

    def tap_up(self, name, address=None, mtu=None):
        """Brings an interface up, if asked with an IPv4 or IPv6 address in prefix notation."""
        if mtu:
            self.run(["ip", "link", "set", "dev", name, "mtu", str(mtu)])
        if address:
            extra = ["nodad"] if ":" in address else []
            self.run(["ip", "addr", "add", address, "dev", name, *extra])
        self.run(["ip", "link", "set", "dev", name, "up"])

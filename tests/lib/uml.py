"""A User-Mode Linux guest: a real Linux virtio_net driver as an ordinary process.

It boots in seconds from the host's own root, read-only, so that every program of the host is there.
/run/host in the guest is the test's scratch folder; /tmp, /run and /var are its own.

The guest lives in pid, mount and network namespaces of its own, below a shell which is pid 1 there,
and is ended as one. That is not a nicety: its processes are traced children of the UML kernel, and
when that kernel alone dies they go on natively on the host.

    guest = Uml(env, socket=env.path("vm0.sock"))
    guest.configure(mac="52:54:00:00:00:01", ipv4="10.0.0.2/24", ipv6="fd00::2/64")
    guest.run("ping -c 3 10.0.0.1")

It needs a back end which serves the control queue and BACKEND_REQ, else it hangs in probe.
"""

import os

from lib.console import Guest

KERNEL = "/usr/bin/linux.uml"
BOOT_SECONDS_MAX = 90
HERE = os.path.dirname(os.path.abspath(__file__))
INIT = os.path.abspath(os.path.join(HERE, "..", "guest", "uml_init.sh"))

# $1 folder for the guest's memory, $2 its size; the rest is the kernel and its arguments. The shell
# stays (no exec): it is pid 1, and when it goes, the namespace goes.
_AS_PID_1 = """
[ $$ = 1 ] || exit 70
mount -t tmpfs -o "exec,mode=700,size=$2" tmpfs "$1" || exit 71
export TMPDIR="$1" HOME="$1"
shift 2
"$@"
exit $?
"""


class Uml(Guest):
    def __init__(self, env, socket=None, memory_mib=128, name=None, nice=0,
                 boot_seconds=BOOT_SECONDS_MAX):
        """`socket`: the vhost-user socket of its network device; None: a guest without one. `nice`:
        below 0 for a guest that must keep up while the machine is busy."""
        super().__init__(env, name or env.unique("uml"))
        if not os.access(KERNEL, os.X_OK):
            env.skip("no User-Mode Linux here: install user-mode-linux")
        if os.geteuid() != 0:
            env.skip("the namespaces of a guest need root")
        folder = env.path(self.name)
        os.makedirs(folder, exist_ok=True)
        command_read, self._write_fd = os.pipe()
        self._read_fd, answer_write = os.pipe()
        argv = ["nice", "-n", str(nice), "unshare", "--fork", "--pid", "--mount", "--net", "--mount-proc",
                "--kill-child=SIGKILL", "sh", "-c", _AS_PID_1, "sh", folder,
                f"{memory_mib + 64}m", KERNEL, *self._kernel_arguments(
                    socket, memory_mib, f"fd:{command_read},fd:{answer_write}")]
        try:
            self.process = env.popen(argv, name=self.name + "-", pass_fds=(command_read, answer_write))
        finally:
            os.close(command_read)
            os.close(answer_write)
        self.console_path = self.process.log_path
        env.defer(self.kill)
        self._wait_ready(boot_seconds)

    def _kernel_arguments(self, socket, memory_mib, channel):
        arguments = [f"mem={memory_mib}M", "rootfstype=hostfs", "rootflags=/", "ro", f"init={INIT}",
                     "con=null", "con0=null,fd:1", "ssl=null", f"ssl0={channel}",
                     "sluice_guest=uml", f"host_folder={self.env.tmp}", f"umid={self.name}"]
        if socket:
            arguments.append(f"virtio_uml.device={socket}:1")
        return arguments

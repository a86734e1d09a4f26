"""Packs the root of a QEMU guest from what the host's packages hold: busybox, a few programs with
their libraries, the kernel's virtio modules, and our init.

The result is kept in build/guest under a name made of the kernel's version and of everything that
went in, so that it is packed once. Nothing is downloaded.

    kernel, initramfs = find_kernel(), build_initramfs(find_kernel())
"""

import glob
import gzip
import hashlib
import lzma
import os
import re
import shutil
import subprocess
import tempfile

from lib.traffic import CACHE, build_traffic_end

HERE = os.path.dirname(os.path.abspath(__file__))
GUEST = os.path.abspath(os.path.join(HERE, "..", "guest"))
# Each module after those it needs.
MODULES = ("virtio_ring", "virtio", "virtio_pci_modern_dev", "virtio_pci_legacy_dev", "virtio_pci",
           "failover", "net_failover", "virtio_net")
BUSYBOX = "/usr/bin/busybox"
# Where busybox is not enough: the real ping has fractions of a second and IPv6 without a prefix.
PROGRAMS = ("iperf3", "ethtool", "ping")
PROGRAM_FOLDERS = "/usr/bin:/usr/sbin:/bin:/sbin"


class Missing(Exception):
    """Something of the host's packages is not there; the text says what to install."""


def find_kernel():
    """The newest Debian kernel with its modules; returns (image, version)."""
    images = glob.glob("/boot/vmlinuz-*")
    images = [image for image in images if os.path.isdir(f"/usr/lib/modules/{version_of(image)}/kernel")]
    if not images:
        raise Missing("no kernel for a QEMU guest in /boot: install linux-image-amd64")
    image = max(images, key=lambda path: [int(number) for number in re.findall(r"\d+", path)])
    return image, version_of(image)


def version_of(image):
    return os.path.basename(image)[len("vmlinuz-"):]


def module_files(version):
    """Paths of MODULES in order; a kernel that has one built in has no file for it."""
    found = []
    for name in MODULES:
        found += glob.glob(f"/usr/lib/modules/{version}/kernel/**/{name}.ko*", recursive=True)[:1]
    return found


def libraries_of(program):
    """Paths of the shared libraries that a program loads, its loader included."""
    text = subprocess.run(["ldd", program], capture_output=True, text=True, timeout=20).stdout
    return re.findall(r"(/\S+) \(0x", text)


def program_files():
    files = []
    for name in PROGRAMS:
        path = shutil.which(name, path=PROGRAM_FOLDERS)
        if not path:
            raise Missing(f"no {name} for the guest: install {'iputils-ping' if name == 'ping' else name}")
        files += [path, *libraries_of(path)]
    if not os.path.exists(BUSYBOX):
        raise Missing("no busybox for the guest: install busybox-static")
    return sorted(set(files))


def build_initramfs():
    """Packs it, unless it is there; returns (kernel image, path of the initramfs)."""
    image, version = find_kernel()
    sources = [os.path.join(GUEST, "qemu_init.sh"), os.path.join(GUEST, "agent.sh"), build_traffic_end(),
               BUSYBOX, os.path.abspath(__file__), *module_files(version), *program_files()]
    digest = hashlib.sha256()
    for source in sources:
        state = os.stat(source)
        digest.update(f"{source} {state.st_size} {state.st_mtime_ns}\n".encode())
    path = os.path.join(CACHE, f"initramfs-{version}-{digest.hexdigest()[:16]}.gz")
    if not os.path.exists(path):
        with tempfile.TemporaryDirectory(prefix="slt-root-") as root:
            fill_root(root, version)
            pack(root, path)
    return image, path


def fill_root(root, version):
    for folder in ("bin", "proc", "sys", "dev", "run", "tmp", "usr/bin", "usr/sbin", "sbin", "modules", "etc"):
        os.makedirs(os.path.join(root, folder))
    copy(os.path.join(GUEST, "qemu_init.sh"), root + "/init")
    copy(os.path.join(GUEST, "agent.sh"), root + "/agent.sh")
    copy(build_traffic_end(), root + "/usr/bin/traffic_end")
    copy(BUSYBOX, root + "/bin/busybox")
    for file in program_files():
        copy(file, root + file)
    applets = subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True, check=True, timeout=20)
    for applet in applets.stdout.split():
        if applet not in PROGRAMS and applet != "busybox":
            os.symlink("busybox", f"{root}/bin/{applet}")
    names = []
    for file in module_files(version):
        name = os.path.basename(file).split(".ko")[0] + ".ko"
        with open(file, "rb") as source, open(f"{root}/modules/{name}", "wb") as target:
            target.write(decompress(file, source.read()))
        names.append(name)
    with open(root + "/modules/order", "w") as order:
        order.write("\n".join(names) + "\n")


def decompress(file, data):
    if file.endswith(".xz"):
        return lzma.decompress(data)
    if file.endswith(".gz"):
        return gzip.decompress(data)
    if not file.endswith(".ko"):
        raise Missing(f"{file} is packed in a way that is not known here")
    return data


def copy(source, target):
    os.makedirs(os.path.dirname(target), exist_ok=True)
    shutil.copy(source, target)
    os.chmod(target, 0o755)


def pack(root, path):
    names = ["."]
    for folder, folders, files in os.walk(root):
        names += [os.path.relpath(os.path.join(folder, name), root) for name in sorted(folders + files)]
    os.makedirs(os.path.dirname(path), exist_ok=True)
    archive = subprocess.run(["cpio", "-o", "-H", "newc", "-R", "0:0", "--quiet"], cwd=root,
                             input="\n".join(names).encode() + b"\n", stdout=subprocess.PIPE,
                             check=True, timeout=60).stdout
    # Level 1: the guest unpacks it in software emulation, and it is read far more often than made.
    part = f"{path}.{os.getpid()}"
    with open(part, "wb") as file:
        file.write(gzip.compress(archive, 1))
    os.rename(part, path)

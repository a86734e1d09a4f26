#!/bin/sh
# Installs what sluice is built from and tested with (Debian 12 packages, apt).
#
#   tools/install-deps.sh --build   what `make build` needs
#   tools/install-deps.sh --demo    that, and the guest of `make demo`
#   tools/install-deps.sh --all     that, and what the tests, fuzzers and `make lint` need (default)
#   tools/install-deps.sh --full    that, and the kernel's source, for `make test-full`
#   tools/install-deps.sh --list    prints the packages of a level (`--all --list`), installs nothing
#
# Says what it does, installs only what is missing, and may be run any number of times. Needs root
# or sudo only when something is missing.
set -eu

build="g++ cmake ninja-build make ccache python3
       libfmt-dev libexpected-dev libcli11-dev nlohmann-json3-dev libtomlplusplus-dev
       libbpf-dev libmd-dev libxbyak-dev pkg-config
       libgtest-dev libgmock-dev libbenchmark-dev"
# A guest that is an ordinary process, and the tools that look at its traffic.
demo="user-mode-linux iproute2 iputils-ping iperf3 kmod util-linux procps clang-16"
# testpmd; a whole machine with a kernel and a root made from packages; the fuzzers' compiler; lint.
all="dpdk dpdk-dev librte-net-virtio23 librte-net-vhost23 librte-net-tap23
     qemu-system-x86 linux-image-amd64 busybox-static cpio
     ethtool tcpdump socat bpftool valgrind libxdp1
     libclang-rt-16-dev llvm-16 clang-format clang-tidy"

# The kernel's own XDP programs, for the full run: they end in it as they do in us.
full="linux-source-6.1"

level=all
list_only=no
for argument in "$@"; do
  case $argument in
    --build | --demo | --all | --full) level=${argument#--} ;;
    --list) list_only=yes ;;
    -h | --help)
      sed -n '2,/^set -eu/{/^set -eu/d;s/^# \{0,1\}//;p}' "$0"
      exit 0
      ;;
    *)
      echo "install-deps: unknown option $argument: use --build, --demo, --all, --full or --list" >&2
      exit 2
      ;;
  esac
done

wanted=$build
[ "$level" = build ] || wanted="$wanted $demo"
case $level in all | full) wanted="$wanted $all" ;; esac
[ "$level" != full ] || wanted="$wanted $full"
if [ "$list_only" = yes ]; then
  printf '%s\n' $wanted
  exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
  echo "install-deps: this is not a Debian-like system (no apt-get)." >&2
  echo "Install the equivalents of these by hand:" $wanted >&2
  exit 1
fi

missing=
for package in $wanted; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) || state=
  [ "$state" = installed ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
  echo "install-deps: nothing to install, all packages of --$level are there"
  exit 0
fi

as_root=
if [ "$(id -u)" != 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "install-deps: these packages are missing and need root to install:$missing" >&2
    echo "Run this script as root, or install sudo." >&2
    exit 1
  fi
  as_root=sudo
fi

echo "install-deps: installing $(echo $missing | wc -w) packages, which can take some minutes:$missing"
# The kernel is only handed to QEMU by path. On a machine that boots nothing itself (a container),
# its package is told not to build an initramfs, which can fail there. On one with a boot loader the
# package must do its usual work, or the machine could choose a kernel that does not boot.
initrd=No
for loader in /boot/grub /boot/loader /boot/efi/EFI /boot/extlinux; do
  [ ! -e "$loader" ] || initrd=Yes
done
run_apt() {
  $as_root env DEBIAN_FRONTEND=noninteractive INITRD="$initrd" \
    apt-get -o DPkg::Lock::Timeout=120 -qq "$@" </dev/null
}
run_apt update
run_apt install -y --no-install-recommends $missing >/dev/null
echo "install-deps: done"

#!/bin/sh
# PID 1 of a User-Mode Linux guest whose root is the host's own root, read-only, through hostfs.
# tests/lib/uml.py starts it. It loads the network driver and then serves the command channel.
#
# Started anywhere else it must do nothing at all: this script mounts and powers off.

refuse() {
  echo "uml_init.sh: $1; it runs only as init of User-Mode Linux, see tests/lib/uml.py" >&2
  exit 1
}

# /run/host holds what the test brings, see below.
export PATH=/run/host:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run
[ "$$" = 1 ] || refuse "this is process $$ and not 1"
[ "$sluice_guest" = uml ] || refuse "the kernel's command line does not name it"
# Through hostfs, /proc is the host's until the guest's own covers it, sysrq-trigger included.
mount -t proc proc /proc || refuse "no /proc"
grep -q "User Mode Linux" /proc/cpuinfo || refuse "this kernel is not User-Mode Linux"

# Now, while its folder is there: the checkout may lie below a folder that gets hidden.
. "${0%/*}/agent.sh"

mount -t sysfs sysfs /sys || refuse "no /sys"
mount -t tmpfs -o exec,mode=755 tmpfs /run
# The test's folder lies below /tmp, which gets hidden: keep a way in.
mkdir /run/host
[ -z "$host_folder" ] || mount --bind "$host_folder" /run/host
mount -t tmpfs -o exec,mode=1777 tmpfs /tmp
mount -t tmpfs -o exec,mode=755 tmpfs /var
grep -q "^devtmpfs /dev " /proc/mounts || mount -t devtmpfs devtmpfs /dev

# A plain queue on the interface: others drop on purpose when the machine is slow.
echo pfifo_fast >/proc/sys/net/core/default_qdisc
modules=/usr/lib/uml/modules/$(uname -r)/kernel
for module in lib/crc-ccitt net/ipv6/ipv6 net/core/failover drivers/net/net_failover drivers/net/virtio_net; do
  insmod "$modules/$module.ko" || echo "uml_init.sh: no module $module"
done
ip link set lo up
ping_range=/proc/sys/net/ipv4/ping_group_range
[ ! -e "$ping_range" ] || echo "0 2147483647" >"$ping_range"

serve_commands /dev/ttyS0 &
wait $!
echo "uml_init.sh: the command channel is closed, powering off"
echo o >/proc/sysrq-trigger
sleep 5

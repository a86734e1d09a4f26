#!/bin/sh
# PID 1 of the QEMU guest: everything it has is the initramfs which tests/lib/initramfs.py packed.
# It loads the drivers, in the order of /modules/order, and then serves the command channel.

refuse() {
  echo "qemu_init.sh: $1; it runs only as init of the guest of tests/lib/qemu.py" >&2
  exit 1
}

export PATH=/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run
[ "$$" = 1 ] || refuse "this is process $$ and not 1"
[ "$sluice_guest" = qemu ] || refuse "the kernel's command line does not name it"
[ -e /modules/order ] || refuse "no /modules/order"

mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
# A plain queue on the interface: others drop on purpose when the machine is slow.
echo pfifo_fast >/proc/sys/net/core/default_qdisc
while read -r module; do
  insmod "/modules/$module" || echo "qemu_init.sh: no module $module"
done </modules/order
ip link set lo up

. /agent.sh
serve_commands /dev/ttyS1 &
wait $!
echo "qemu_init.sh: the command channel is closed, powering off"
poweroff -f

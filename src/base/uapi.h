// Kernel constants that are newer than the headers of Debian 12. Whoever uses one probes at run
// time whether the running kernel knows it.
#pragma once

#include <linux/if_tun.h>

// TUNSETOFFLOAD: UDP segmentation, since Linux 6.2. The kernel takes the two only together.
#ifndef TUN_F_USO4
#define TUN_F_USO4 0x20
#endif
#ifndef TUN_F_USO6
#define TUN_F_USO6 0x40
#endif

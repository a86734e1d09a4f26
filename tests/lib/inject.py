#!/usr/bin/env python3
"""Sends an exact number of frames into an interface of the namespace that it is run in, and says as
JSON what became of them. Run by the tests with `ip netns exec`; not a benchmark.

    inject.py send IFACE COUNT SIZE WINDOW    COUNT frames of SIZE bytes. At most WINDOW of them are
                                              unread by the interface's owner; 0: no regard to
                                              that, and what the kernel refuses is in tx_dropped.
    inject.py echo IFACE COUNT SEED           COUNT frames of many sizes and random content, each of
                                              which must come back once, in order and unchanged.

A frame: to 02:00:00:00:00:01, EtherType 0x88b5 (for experiments), a number, then content.
"""

import errno
import json
import random
import socket
import struct
import sys
import time

ETHERTYPE = 0x88B5
HEADER = bytes.fromhex("020000000001" "02000000f001") + struct.pack("!H", ETHERTYPE)
SECONDS_MAX = 60
SOL_PACKET, PACKET_QDISC_BYPASS, PACKET_IGNORE_OUTGOING = 263, 20, 23
FRAME_BYTES_MIN, FRAME_BYTES_MAX = 60, 1514
ECHO_WINDOW_FRAMES = 32


def open_socket(interface, protocol):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(protocol))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    sock.bind((interface, protocol))
    # Straight to the driver: a frame is then accepted or counted there, by nobody in between.
    sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    return sock


def counter(interface, name):
    with open(f"/sys/class/net/{interface}/statistics/{name}") as file:
        return int(file.read())


def send(interface, count, size, window):
    sock = open_socket(interface, 0)
    result = {"attempts": count, "refused": 0}
    read_before = counter(interface, "tx_packets")
    deadline = time.monotonic() + SECONDS_MAX
    for number in range(count):
        content = HEADER + struct.pack("!I", number)
        try:
            sock.send(content + bytes(size - len(content)))
        except OSError as error:
            # The queue is full: the kernel counted this frame in tx_dropped.
            if error.errno != errno.ENOBUFS or window:
                raise
            result["refused"] += 1
        if window and (number + 1) % window == 0:
            while counter(interface, "tx_packets") - read_before <= number:
                if time.monotonic() > deadline:
                    raise SystemExit(f"{interface}: after {number + 1} frames its owner stopped "
                                     "reading")
                time.sleep(0.0002)
    return result


def echo(interface, count, seed):
    generator = random.Random(seed)
    sock = open_socket(interface, ETHERTYPE)
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    sock.settimeout(5)
    result = {"sent": 0, "returned": 0}
    waiting = []
    while result["returned"] < count:
        while result["sent"] < count and len(waiting) < ECHO_WINDOW_FRAMES:
            size = generator.randint(FRAME_BYTES_MIN, FRAME_BYTES_MAX)
            head = HEADER + struct.pack("!I", result["sent"])
            waiting.append(head + generator.randbytes(size - len(head)))
            sock.send(waiting[-1])
            result["sent"] += 1
        try:
            frame = sock.recv(65536)
        except TimeoutError:
            raise SystemExit(f"frame {result['returned']} of {count} did not come back") from None
        expected = waiting.pop(0)
        if frame != expected:
            raise SystemExit(f"frame {result['returned']} came back changed or out of order: "
                             f"{len(frame)} bytes, number {frame[14:18].hex()}, expected "
                             f"{len(expected)} bytes, number {expected[14:18].hex()}")
        result["returned"] += 1
    return result


def main():
    mode, interface, *numbers = sys.argv[1:]
    action = {"send": send, "echo": echo}[mode]
    print(json.dumps(action(interface, *(int(number) for number in numbers))))


if __name__ == "__main__":
    main()

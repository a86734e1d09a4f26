#!/usr/bin/env python3
"""Sends frames whose first byte says what an XDP program shall do with them, and prints as JSON which
of them came out of each interface. Run inside the namespace of the interfaces.

    verdict_frames.py FROM INTERFACE...
"""

import json
import socket
import sys
import time

ETHERTYPE = 0x88B5
HEADER = bytes.fromhex("020000000001" "02000000f001") + ETHERTYPE.to_bytes(2, "big")
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
# verdict, key of the device map, number of the frame
FRAMES = [(0, 0, 0), (1, 0, 1), (2, 0, 2), (3, 0, 3), (4, 1, 4), (4, 7, 5), (99, 0, 6)]


def open_socket(interface):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    sock.bind((interface, ETHERTYPE))
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    sock.settimeout(0.5)
    return sock


def main():
    names = list(dict.fromkeys(sys.argv[1:]))
    sockets = {name: open_socket(name) for name in names}
    for verdict, key, number in FRAMES:
        frame = HEADER + bytes([verdict, key, number]) + bytes(43)
        sockets[sys.argv[1]].send(frame)
    time.sleep(0.5)
    seen = {}
    for name, sock in sockets.items():
        seen[name] = []
        try:
            while len(seen[name]) < 100:
                seen[name].append(sock.recv(2048)[16])
        except socket.timeout:
            pass
    print(json.dumps(seen))


if __name__ == "__main__":
    main()

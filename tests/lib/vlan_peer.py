#!/usr/bin/env python3
"""A host in a VLAN, without the kernel's VLAN devices: answers ARP and pings whose frames are tagged,
with tagged frames. Run inside the interface's namespace; ends with the test.

    vlan_peer.py INTERFACE VLAN IPV4 MAC
"""

import ctypes
import socket
import struct
import sys

SOL_PACKET, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING = 263, 8, 23
TP_STATUS_VLAN_VALID = 1 << 4
TAG = 0x8100


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[:len(data) // 2 * 2]))
    if len(data) % 2:
        total += data[-1] << 8
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def receive(sock):
    """(VLAN or None, frame without its tag): the kernel takes the tag out and tells it beside."""
    frame, extra, _flags, _address = sock.recvmsg(2048, 256)
    for level, kind, data in extra:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            status, _length, _snap, _mac, _net, control, _protocol = struct.unpack("IIIHHHH", data[:20])
            if status & TP_STATUS_VLAN_VALID:
                return control & 0xFFF, frame
    if frame[12:14] == TAG.to_bytes(2, "big"):
        return struct.unpack("!H", frame[14:16])[0] & 0xFFF, frame[:12] + frame[16:]
    return None, frame


def answer_to(frame, address, mac):
    """The answer to an ARP request or a ping for us, untagged; None: it is neither."""
    ethernet = frame[6:12] + mac
    if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\x00\x01" and frame[38:42] == address:
        return ethernet + frame[12:20] + b"\x00\x02" + mac + address + frame[22:28] + frame[28:32]
    if frame[12:14] == b"\x08\x00" and frame[23] == 1 and frame[30:34] == address:
        header = bytearray(frame[14:34])
        header[12:16], header[16:20] = frame[30:34], frame[26:30]
        length = struct.unpack("!H", frame[16:18])[0]
        message = bytearray(frame[34:14 + length])
        if message[0] != 8:
            return None
        message[0:4] = bytes(4)
        message[2:4] = checksum(bytes(message)).to_bytes(2, "big")
        return ethernet + b"\x08\x00" + bytes(header) + bytes(message)
    return None


def main():
    interface, vlan = sys.argv[1], int(sys.argv[2])
    address = socket.inet_aton(sys.argv[3])
    mac = bytes.fromhex(sys.argv[4].replace(":", ""))
    ctypes.CDLL(None).prctl(1, 9)  # die with the test
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sock.bind((interface, 3))
    sock.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    print("ready", flush=True)
    while True:
        got, frame = receive(sock)
        answer = answer_to(frame, address, mac) if got == vlan else None
        if answer:
            sock.send(answer[:12] + struct.pack("!HH", TAG, vlan) + answer[12:])


if __name__ == "__main__":
    main()

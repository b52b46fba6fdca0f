"""Valid and invalid Ethernet frames with UDP datagrams, made without code of the readers."""

import ipaddress
import struct

UDP, TCP, FRAGMENT_HEADER = 17, 6, 44


def sum16(data: bytes) -> int:
    """Return the folded one's complement sum of big-endian words (RFC 1071)."""
    total = sum(struct.unpack(f">{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def udp(
    source: str, destination: str, payload: bytes, port: int, *, checksum: str = "right"
) -> bytes:
    """Return a UDP header (from port 7) and payload; `checksum`: right, partial, none, wrong."""
    ends = ipaddress.ip_address(source).packed + ipaddress.ip_address(destination).packed
    size = 8 + len(payload)
    pseudo = ends + struct.pack(">HH", UDP, size)
    whole = struct.pack(">HHHH", 7, port, size, 0) + payload
    right = sum16(pseudo + whole) ^ 0xFFFF or 0xFFFF
    field = {
        "right": right,
        "partial": sum16(pseudo),
        "none": 0,
        "wrong": right ^ 0x0100,
    }[checksum]
    return whole[:6] + struct.pack(">H", field) + payload


def ipv4(
    source: str,
    destination: str,
    body: bytes,
    *,
    protocol: int = UDP,
    options: bytes = b"",
    fragment: int = 0,
    damage: int = 0,
) -> bytes:
    """Return an IPv4 datagram; `fragment` is the field of flags and offset."""
    words = 5 + len(options) // 4
    head = struct.pack(
        ">BBHHHBBH4s4s",
        0x40 | words,
        0,
        4 * words + len(body),
        1,
        fragment,
        64,
        protocol,
        0,
        ipaddress.ip_address(source).packed,
        ipaddress.ip_address(destination).packed,
    )
    head += options
    right = sum16(head) ^ 0xFFFF
    return head[:10] + struct.pack(">H", right ^ damage) + head[12:] + body


def ipv6(
    source: str,
    destination: str,
    body: bytes,
    *,
    protocol: int = UDP,
    extension: bytes = b"",
) -> bytes:
    """Return an IPv6 datagram; `protocol` is that of the first header after the fixed one."""
    return (
        struct.pack(">IHBB", 6 << 28, len(extension) + len(body), protocol, 64)
        + ipaddress.ip_address(source).packed
        + ipaddress.ip_address(destination).packed
        + extension
        + body
    )


def ethernet(
    body: bytes,
    *,
    tags: tuple[int, ...] = (),
    destination: bytes = b"\xff" * 6,
    source: bytes = bytes(6),
) -> bytes:
    """Return a frame around an IP datagram; `tags` are the ethertypes of its VLAN tags."""
    ethertype = 0x86DD if body[:1] and body[0] >> 4 == 6 else 0x0800
    kinds = (*tags, ethertype)
    head = destination + source + struct.pack(">H", kinds[0])
    for vlan, kind in enumerate(kinds[1:], 100):
        head += struct.pack(">HH", vlan, kind)
    return head + body

"""The kernel's own counts of lost datagrams, from fixture trees and a socket that overflows."""

import os
import socket

import pytest

from udpfast.net.drops import HostDrops, SocketDrops, host_drops, socket_drops

SNMP = """\
Ip: Forwarding DefaultTTL InReceives
Ip: 1 64 6
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti
Udp: 100 7 12 100 10 0 2 31
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors
UdpLite: 9 9 9 9 9 9 9
"""
SNMP6 = """\
Ip6InReceives                   \t5
Udp6NoPorts                     \t3
Udp6RcvbufErrors                \t4
UdpLite6NoPorts                 \t9
"""
SOFTNET = "000000ff 0000000a 00000003 00000000\n00000001 00000006 00000001 00000000\n"
TITLE = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  " \
    "timeout inode ref pointer drops\n"  # fmt: skip


def row(address, inode, drops):
    """Return one row of /proc/net/udp."""
    return (f" 100: {address} 00000000:0000 07 00000000:00000000 00:00000000 00000000     0"
            f"        0 {inode} 2 0000000000000000 {drops}\n")  # fmt: skip


@pytest.fixture
def proc(tmp_path):
    """Return a tree with process 42, whose descriptors 3 and 4 are sockets."""
    net = tmp_path / "42" / "net"
    net.mkdir(parents=True)
    (net / "snmp").write_text(SNMP)
    (net / "snmp6").write_text(SNMP6)
    (net / "softnet_stat").write_text(SOFTNET)
    (net / "udp").write_text(
        TITLE + row("0100007F:2329", 555, 17) + row("0100007F:2329", 556, 99)
        + row("010101EF:232A", 557, 0)
    )  # fmt: skip
    (net / "udp6").write_text(TITLE + row(f"{'0' * 24}01000000:2329", 558, 5))
    descriptors = tmp_path / "42" / "fd"
    descriptors.mkdir()
    for number, target in (
        ("0", "/dev/null"), ("3", "socket:[555]"), ("4", "socket:[558]"), ("5", "socket:[557]"),
    ):  # fmt: skip
        (descriptors / number).symlink_to(target)
    return tmp_path


def test_host_drops_are_both_families_and_all_processors(proc):
    assert host_drops(42, proc) == HostDrops(
        rcvbuf_errors=14, checksum_errors=2, memory_errors=0, no_ports=10,
        softnet_dropped=16, softnet_squeezed=4,
    )  # fmt: skip


def test_host_drops_without_ipv6_are_those_of_ipv4(proc):
    (proc / "42" / "net" / "snmp6").unlink()
    assert host_drops(42, proc).rcvbuf_errors == 10


def test_socket_drops_are_those_of_the_process_alone(proc):
    assert socket_drops(42, proc) == [
        SocketDrops("127.0.0.1:9001", 555, 17),
        SocketDrops("239.1.1.1:9002", 557, 0),
        SocketDrops("[::1]:9001", 558, 5),
    ]


def test_drops_of_no_process_say_so(proc):
    with pytest.raises(FileNotFoundError):
        socket_drops(43, proc)
    with pytest.raises(FileNotFoundError):
        host_drops(43, proc)


def test_drops_of_a_socket_that_overflows_are_counted_by_socket_and_host():
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as full,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
    ):
        full.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        full.bind(("127.0.0.1", 0))
        before = host_drops().rcvbuf_errors
        for _ in range(200):
            sender.sendto(b"x" * 512, full.getsockname())
        full.setblocking(False)
        received = 0
        while True:
            try:
                full.recv(600)
            except BlockingIOError:
                break
            received += 1
        address = f"127.0.0.1:{full.getsockname()[1]}"
        found = [one.drops for one in socket_drops(os.getpid()) if one.address == address]
        assert found == [200 - received]
        assert 0 < found[0] <= host_drops().rcvbuf_errors - before

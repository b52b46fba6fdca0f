"""Sockets between processes and groups: isolation, preloaded stacks, counted system calls."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import PATIENCE_S
from udpfast.net.datagram import DatagramReceiver
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.sender import DatagramSender

pytestmark = pytest.mark.system

ROOT = Path(__file__).resolve().parents[2]
OPTIONS = ReceiveOptions(timestamps="none", rcvbuf_bytes=1 << 20)

# Receives 200 datagrams from a burst, and says how the library under it was called.
DRAIN = """
import socket
from udpfast.net.datagram import DatagramReceiver
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.sender import DatagramSender
line = DatagramReceiver(LineAddress("127.0.0.1:0"), ReceiveOptions(timestamps="none"))
sender = DatagramSender(f"127.0.0.1:{line.address[1]}")
assert sender.send([b"x"] * 200) == 200
received = 0
while more := line.receive():
    received += len(more)
print("received", received)
"""

# A stack of this sort takes over what programs call by name in libc.
STUB = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/socket.h>
static int calls;
int recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *t) {
    int (*next)(int, struct mmsghdr *, unsigned, int, struct timespec *) =
        (int (*)(int, struct mmsghdr *, unsigned, int, struct timespec *))dlsym(
            RTLD_NEXT, "recvmmsg");
    calls++;
    return next(fd, v, n, flags, t);
}
__attribute__((destructor)) static void say(void) { fprintf(stderr, "stub recvmmsg %d\\n", calls); }
"""


def run(*command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def group_line(group: str, port: int, **line: str) -> DatagramReceiver:
    return DatagramReceiver(LineAddress(f"{group}:{port}", interface="lo", **line), OPTIONS)


def payloads(line: DatagramReceiver) -> list[bytes]:
    received: list[bytes] = []
    while more := line.receive():
        received += [datagram.payload for datagram in more]
    return received


def test_preloaded_library_gets_every_recvmmsg(tmp_path: Path) -> None:
    compiler = shutil.which("gcc")
    if compiler is None:
        pytest.skip("no gcc to build the stub with")
    source, library = tmp_path / "stub.c", tmp_path / "libstub.so"
    source.write_text(STUB)
    run(compiler, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl")
    done = run(sys.executable, "-c", DRAIN, LD_PRELOAD=str(library))
    # One by recv, then 64 + 64 + 64 + 7 and the empty call that ends the backlog.
    assert done.stdout == "received 200\n"
    assert done.stderr.splitlines()[-1] == "stub recvmmsg 5"


def test_burst_takes_one_system_call_per_batch_and_sends_nothing_back() -> None:
    tracer = shutil.which("strace")
    if tracer is None:
        pytest.skip("no strace to count system calls with")
    done = subprocess.run(
        [
            tracer,
            "-f",
            "-e",
            "trace=recvfrom,recvmsg,recvmmsg,sendto,sendmsg,sendmmsg",
            sys.executable,
            "-c",
            DRAIN,
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if "received 200" not in done.stdout:
        pytest.skip(f"strace is not allowed to trace here: {done.stderr[-200:]}")
    calls = [line.split("(")[0].split()[-1] for line in done.stderr.splitlines() if "(" in line]
    assert calls == ["sendmmsg"] * 4 + ["recvfrom"] + ["recvmmsg"] * 5


def test_two_groups_on_one_port_stay_apart() -> None:
    with group_line("239.1.2.3", 0) as first:
        port = first.address[1]
        with (
            group_line("239.1.2.4", port) as second,
            DatagramSender(f"239.1.2.3:{port}", interface="lo") as to_first,
            DatagramSender(f"239.1.2.4:{port}", interface="lo") as to_second,
        ):
            to_first.send([b"first"] * 3)
            to_second.send([b"second"] * 3)
            assert payloads(first) == [b"first"] * 3
            assert payloads(second) == [b"second"] * 3


def test_group_that_another_process_joined_does_not_reach_a_wildcard_line() -> None:
    # Joining is a matter of the whole host: without IP_MULTICAST_ALL=0 every socket that is bound
    # to 0.0.0.0 hears what any process asked for.
    code = (
        "import socket, struct, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack('=4s4si', "
        "socket.inet_aton('239.1.2.5'), bytes(4), socket.if_nametoindex('lo')))\n"
        "print('joined', flush=True)\n"
        "sys.stdin.read()"
    )
    with (
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other,
        DatagramReceiver(LineAddress("0.0.0.0:0"), OPTIONS) as line,
    ):
        assert other.stdout.readline() == "joined\n"
        port = line.address[1]
        with (
            DatagramSender(f"239.1.2.5:{port}", interface="lo") as foreign,
            DatagramSender(f"127.0.0.1:{port}") as configured,
        ):
            foreign.send([b"foreign"])
            configured.send([b"configured"])
            assert payloads(line) == [b"configured"]
        other.stdin.close()


def test_source_specific_join_admits_that_source_only() -> None:
    with group_line("239.1.2.6", 0, source="127.0.0.1") as line:
        port = line.address[1]
        with (
            DatagramSender(f"239.1.2.6:{port}", interface="lo") as listed,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger,
        ):
            stranger.bind(("127.0.0.2", 0))
            stranger.setsockopt(
                socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1")
            )
            stranger.sendto(b"stranger", ("239.1.2.6", port))
            listed.send([b"listed"])
            assert payloads(line) == [b"listed"]


def test_two_sockets_on_one_group_both_hear_it() -> None:
    with group_line("239.1.2.7", 0) as first:
        port = first.address[1]
        with (
            group_line("239.1.2.7", port) as second,
            DatagramSender(f"239.1.2.7:{port}", interface="lo") as sender,
        ):
            sender.send([b"both"])
            assert payloads(first) == payloads(second) == [b"both"]


# A veth pair in a network namespace of its own: lo carries no IPv6 groups.
IPV6_NETWORK = """
set -e
ip link set lo up
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
ip link add near type veth peer name far
ip link set near up
ip link set far up
for wire in near far; do  # which have no route for a moment after they were made
    for _ in $(seq 1000); do
        ip -6 route get ff02::1 oif $wire > /dev/null 2>&1 && break
        sleep 0.01
    done
done
exec "$0" -c "$1"
"""
IPV6_GROUPS = """
import select
from udpfast.net import multicast
from udpfast.net.datagram import DatagramReceiver
from udpfast.net.line import LineAddress, ReceiveOptions
from udpfast.net.sender import DatagramSender

def heard(address, source=""):
    line = LineAddress(f"[{address}]:0", interface="far", source=source)
    with DatagramReceiver(line, ReceiveOptions(timestamps="none")) as receiver:
        host, port = receiver.address[0].split("%")[0], receiver.address[1]
        with DatagramSender(f"[{host}]:{port}", interface="near") as sender:
            sender.send([b"six"])
        select.select([receiver], [], [], 0.2 if source == "fe80::1" else 10)
        return [datagram.payload for datagram in receiver.receive()]

own = multicast.resolve_interface("near").ipv6
print(heard("ff02::1:9001"), heard("ff05::1:9001"), heard("ff05::1:9001", own),
      heard("ff05::1:9001", "fe80::1"), heard(multicast.resolve_interface("far").ipv6))
"""


def test_ipv6_groups_sources_and_link_local_addresses() -> None:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("no unshare or ip to make a network namespace with")
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", IPV6_NETWORK, sys.executable, IPV6_GROUPS],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE_S,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    if done.returncode != 0 and "Traceback" not in done.stderr:
        pytest.skip(f"no network namespace with IPv6 for this user: {done.stderr.strip()}")
    assert done.stdout == "[b'six'] [b'six'] [b'six'] [] [b'six']\n", done.stderr

"""Addresses, interfaces and socket options: valid ones, and the messages for the others."""

import socket

import pytest

from udpfast.errors import ConfigError
from udpfast.net import multicast, options
from udpfast.net.line import (
    LineAddress,
    ReceiveOptions,
    open_receiver,
    open_sender,
    parse_endpoint,
    parse_senders,
)


def outcome(line: LineAddress, wanted: ReceiveOptions) -> dict[str, options.OptionResult]:
    sock, results = open_receiver(line, wanted)
    sock.close()
    return {result.name: result for result in results}


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("239.1.2.3:9001", ("239.1.2.3", 9001)),
        ("0.0.0.0:0", ("0.0.0.0", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_parse_endpoint_reads_both_families(text: str, endpoint: tuple[str, int]) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "127.0.0.1",
        "127.0.0.1:",
        ":9001",
        "127.0.0.1:65536",
        "127.0.0.1:-1",
        "127.0.0.1:٣",
        "::1:9001",
        "[127.0.0.1]:9001",
        "[::1]",
        "localhost:9001",
        "127.0.0.1:90 01",
        "1.2.3:9001",
    ],
)
def test_parse_endpoint_refuses_and_says_what_it_found(text: str) -> None:
    with pytest.raises(ConfigError, match="expected an address"):
        parse_endpoint(text)


def test_parse_senders_maps_ipv4_and_keeps_ports() -> None:
    mapped = bytes(10) + b"\xff\xff\x0a\x00\x00\x05"
    assert parse_senders(["10.0.0.5", "10.0.0.5:77", "::1", "[::1]", "[::1]:77"]) == [
        (mapped, 0),
        (mapped, 77),
        (bytes(15) + b"\x01", 0),
        (bytes(15) + b"\x01", 0),
        (bytes(15) + b"\x01", 77),
    ]
    with pytest.raises(ConfigError, match="found 'gateway'"):
        parse_senders(["gateway"])
    with pytest.raises(ConfigError, match="found"):
        parse_senders(["[10.0.0.5]"])


@pytest.mark.parametrize("text", ["lo", "127.0.0.1", "::1"])
def test_resolve_interface_by_name_and_address(text: str) -> None:
    if text == "::1" and not socket.has_ipv6:
        pytest.skip("no IPv6 on this host")
    interface = multicast.resolve_interface(text)
    assert (interface.name, interface.index) == ("lo", socket.if_nametoindex("lo"))
    assert interface.ipv4 == "127.0.0.1"


def test_resolve_interface_unknown_lists_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"this host .lo.*found 'eth77'"):
        multicast.resolve_interface("eth77")


def test_open_receiver_is_non_blocking_and_reports_the_queue() -> None:
    sock, results = open_receiver(LineAddress("127.0.0.1:0"), ReceiveOptions(rcvbuf_bytes=1 << 16))
    with sock:
        assert sock.getblocking() is False
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == 2 << 16
        queue = results[0]
        assert (queue.asked, queue.got, queue.reason) == (str(1 << 16), str(1 << 16), "")


def test_open_receiver_queue_beyond_the_limit_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    # The forced option is refused without CAP_NET_ADMIN; here, because it does not exist.
    monkeypatch.setattr(options, "_SO_RCVBUFFORCE", 9999)
    queue = outcome(LineAddress("127.0.0.1:0"), ReceiveOptions(rcvbuf_bytes=1 << 30))["SO_RCVBUF"]
    assert int(queue.got) < 1 << 30
    assert "net.core.rmem_max is" in queue.reason


def test_open_receiver_notes_every_refused_option(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "_SO_RXQ_OVFL",
        "_SO_MEMINFO",
        "_SO_BUSY_POLL",
        "_SO_PREFER_BUSY_POLL",
        "_SO_BUSY_POLL_BUDGET",
        "_SO_TIMESTAMPING",
        "_SO_TIMESTAMPNS",
    ):
        monkeypatch.setattr(options, name, 9999)
    wanted = ReceiveOptions(busy_poll_us=50, prefer_busy_poll=True, busy_poll_budget=64)
    results = outcome(LineAddress("127.0.0.1:0"), wanted)
    for name in ("SO_RXQ_OVFL", "SO_BUSY_POLL", "SO_PREFER_BUSY_POLL", "SO_BUSY_POLL_BUDGET"):
        assert results[name].got == "refused"
        assert results[name].reason.startswith("Protocol not available")
    assert results["SO_TIMESTAMPNS"].got == "none"
    results = outcome(LineAddress("127.0.0.1:0"), ReceiveOptions(timestamps="none"))
    assert results["SO_MEMINFO"].reason.startswith("Protocol not available")


def test_open_receiver_busy_polling_is_granted_or_says_what_it_needs() -> None:
    wanted = ReceiveOptions(busy_poll_us=50, prefer_busy_poll=True, busy_poll_budget=64)
    results = outcome(LineAddress("127.0.0.1:0"), wanted)
    for name, asked in (("SO_PREFER_BUSY_POLL", "1"), ("SO_BUSY_POLL_BUDGET", "64")):
        result = results[name]
        assert result.asked == asked
        assert (result.got, result.reason) == (asked, "") or "CAP_NET_ADMIN" in result.reason
    plain = outcome(LineAddress("127.0.0.1:0"), ReceiveOptions(busy_poll_us=50))
    assert not {"SO_PREFER_BUSY_POLL", "SO_BUSY_POLL_BUDGET"} & set(plain)


def test_open_receiver_stamps_fall_back_to_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "_SO_TIMESTAMPING", 9999)
    stamps = outcome(LineAddress("127.0.0.1:0"), ReceiveOptions())["SO_TIMESTAMPNS"]
    assert stamps.got == "kernel"
    assert "SO_TIMESTAMPING: Protocol not available" in stamps.reason


def test_open_receiver_stamps_on_lo_say_that_no_nic_makes_them() -> None:
    stamps = outcome(LineAddress("127.0.0.1:0", interface="lo"), ReceiveOptions())
    assert stamps["SO_TIMESTAMPING"].got == "kernel"
    assert "lo has no time stamps" in stamps["SO_TIMESTAMPING"].reason


def test_receive_options_unknown_stamps_say_found() -> None:
    with pytest.raises(ConfigError, match=r"must be one of auto, .*, was 'nic'"):
        ReceiveOptions(timestamps="nic")


def test_open_receiver_second_socket_on_a_unicast_port_is_refused() -> None:
    sock, _ = open_receiver(LineAddress("127.0.0.1:0"), ReceiveOptions())
    with sock:
        address = f"127.0.0.1:{sock.getsockname()[1]}"
        with pytest.raises(OSError, match=f"cannot bind: {address}: Address already in use"):
            open_receiver(LineAddress(address), ReceiveOptions())


def test_open_receiver_foreign_address_names_it() -> None:
    with pytest.raises(OSError, match=r"cannot bind: 192.0.2.1:9001"):
        open_receiver(LineAddress("192.0.2.1:9001"), ReceiveOptions())


def test_open_receiver_source_needs_a_group_of_its_family() -> None:
    with pytest.raises(ConfigError, match=r"multicast group.*'127.0.0.1:0'"):
        open_receiver(LineAddress("127.0.0.1:0", source="127.0.0.1"), ReceiveOptions())
    with pytest.raises(ConfigError, match="must be IPv4, was '::1'"):
        open_receiver(LineAddress("239.1.2.3:0", source="::1"), ReceiveOptions())


def test_open_sender_reports_ttl_and_loop() -> None:
    sock, results = open_sender("239.1.2.3:9001", interface="lo", ttl=7, loop=False)
    with sock:
        got = {result.name: result.got for result in results}
        assert (got["MULTICAST_TTL"], got["MULTICAST_LOOP"]) == ("7", "0")


def test_open_sender_interface_is_the_source_of_unicast() -> None:
    sock, _ = open_sender("127.0.0.1:9001", interface="127.0.0.1")
    with sock:
        assert sock.getsockname()[0] == "127.0.0.1"

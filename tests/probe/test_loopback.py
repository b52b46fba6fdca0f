"""Sender and listener in one process, over the loopback: what is counted, refused and survived."""

import contextlib
import random
import socket
import threading
from collections.abc import Iterator

import numpy as np
import pytest
from msgspec.structs import replace

from tests.waiting import PATIENCE_S, wait_until
from udpfast.core.endpoint import parse_endpoint
from udpfast.errors import ConfigError, UdpfastError
from udpfast.net.line import LineAddress
from udpfast.net.ports import free_port
from udpfast.probe import Receiver, Result, Sender
from udpfast.probe.control import (
    CONTROL_BYTES,
    HEADER,
    Clock,
    Header,
    Hello,
    ProbeKind,
    Report,
    decode_body,
    encode,
    parse_header,
)
from udpfast.probe.text import result_text

HELLO = Hello("127.0.0.1", "line", 100, 128, 1e3, 1, Clock())


@contextlib.contextmanager
def listening(*addresses: str, **more: object) -> Iterator[tuple[Receiver, str]]:
    """Listen, without a core of one's own: this host has others to run."""
    where = addresses or ("127.0.0.1:0",)
    with Receiver(where, spin=False, **more) as receiver:  # type: ignore[arg-type]
        yield receiver, receiver.addresses[0]


def sender(lines: dict[str, LineAddress | str], **more: object) -> Sender:
    wanted: dict[str, object] = {"rate_per_s": 2000, "seconds": 0.25, "spin": False, **more}
    return Sender(lines, **wanted)  # type: ignore[arg-type]


def taken(receiver: Receiver) -> Result:
    found = receiver.wait(PATIENCE_S)
    assert found is not None
    return found


@pytest.mark.parametrize("timestamps", ["auto", "none"])
@pytest.mark.parametrize("train", [1, 7, 64])
def test_all_arrive_and_all_come_back(timestamps: str, train: int) -> None:
    with listening(timestamps=timestamps) as (receiver, address):
        with sender({"a": address, "b": address}, train=train, timestamps=timestamps) as own:
            found = own.run()
        heard = taken(receiver)
    assert found.complete
    assert list(found.lines) == list(heard.lines) == ["a", "b"]
    for result in (found, heard):
        for line in result.lines.values():
            assert line.reported
            assert line.sent.all()
            assert line.arrived.all()
            # Nothing overtakes on a loopback.
            assert (np.diff(line.out_order) > 0).all()
            assert (line.out_ns >= 0).all() or result.side == "listener"
        words = {"sender": "way out", "listener": "send to arrival"}
        shown = result_text(result).replace("lost, way out", "")
        for side, word in words.items():
            assert (word in shown) is (side == result.side)
    for line in found.lines.values():
        assert line.returned.all()
        assert (line.back_ns >= 0).all()
        assert (line.turn_ns >= 0).all()
        assert (line.late_ns >= 0).all()
        # What the parts take is what the whole takes, but for the microseconds between a stamp of
        # the kernel and the loop's look at its clock, which may be any number on a busy host.
        parts = line.late_ns + line.out_ns + line.turn_ns + line.back_ns
        assert (parts <= line.round_trip_ns + 1000).all()
        stamp = "kernel" if timestamps == "auto" else "none"
        assert line.stamps["reached"] == line.stamps["returned"] == stamp
        assert (line.stamps["sent"] == "none") == (timestamps == "none")
    assert found.offset.method == "same clock"
    assert len(found.races) == 2


def test_listener_that_starts_second_is_found() -> None:
    address = f"127.0.0.1:{free_port()}"
    results: list[Result] = []
    with sender({"a": address}) as own:

        def measure() -> None:
            own.connect(PATIENCE_S)
            results.append(own.run())

        thread = threading.Thread(target=measure)
        thread.start()
        with listening(address):
            thread.join()
    assert results[0].lines["a"].returned.all()


def test_no_listener_is_an_error_that_says_what_to_start() -> None:
    with (
        sender({"a": "127.0.0.1:9"}) as own,
        pytest.raises(UdpfastError, match=r"from 127\.0\.0\.1:9 by a: is `udpfast wire listen`"),
    ):
        own.connect(0.2)


def test_line_without_a_listener_is_lost_and_the_other_is_not() -> None:
    with listening() as (receiver, address):
        with sender({"a": address, "dead": "127.0.0.1:9"}) as own:
            assert own.connect() == ["a"]
            found = own.run(linger_s=0.1)
        taken(receiver)
    assert found.lines["a"].arrived.all()
    assert not found.lines["dead"].arrived.any()
    assert not found.lines["dead"].reported
    assert found.races[0].only_first == len(found.planned_ns)
    assert not found.lost_on_all.any()


def test_listener_that_is_started_anew_goes_on() -> None:
    with contextlib.ExitStack() as stack:
        first, address = stack.enter_context(listening())
        with sender({"a": address}, rate_per_s=1000, seconds=600) as own:
            own.connect()
            results: list[Result] = []
            thread = threading.Thread(target=lambda: results.append(own.run(linger_s=1)))
            thread.start()
            wait_until(lambda: own.live()["a"]["echoes"] > 100, "echoes")
            first.close()
            before = own.live()["a"]["echoes"]
            second, _ = stack.enter_context(listening(address))
            wait_until(lambda: own.live()["a"]["echoes"] > before + 100, "echoes of the second")
            own.stop()
            thread.join()
            heard = taken(second)
    (found,) = results
    line = found.lines["a"]
    assert found.listener_starts == 2
    assert not found.complete
    assert 200 < line.returned.sum() < line.sent.sum() == len(found.planned_ns)
    # Nothing was lost on the line; the probes of the time without a listener are apart.
    assert not line.lost.any()
    assert 10 < line.away.sum() == line.sent.sum() - line.arrived.sum()
    assert len(line.runs) == 0
    # Places of arrival go on at the second one.
    assert (np.diff(line.out_order[line.returned]) > 0).all()
    # The first one said at its end what it had counted.
    assert line.counts["out_duplicates"] == line.counts["out_reordered"] == 0
    # The second listener has no word on those that it cannot have had.
    (theirs,) = heard.lines.values()
    assert heard.first_probe == np.flatnonzero(line.away)[-1] + 1
    assert theirs.arrived.all()
    assert len(theirs.arrived) == len(line.arrived) - heard.first_probe


def test_run_that_is_stopped_gives_what_it_has() -> None:
    with listening() as (receiver, address):
        with sender({"a": address}, seconds=600) as own:
            own.connect()
            threading.Thread(
                target=lambda: (
                    wait_until(lambda: own.live()["a"]["echoes"] > 50, "echoes"),
                    own.stop(),
                )
            ).start()
            found = own.run()
        heard = taken(receiver)
    assert not found.complete
    assert 50 < len(found.planned_ns) < 600 * 2000
    assert len(found.lines["a"].round_trip_ns) == len(found.planned_ns)
    assert heard.lines["a"].arrived.sum() == found.lines["a"].arrived.sum()


def test_results_of_all_sessions_that_end_at_once_can_be_taken() -> None:
    with listening() as (receiver, address), contextlib.ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(sender({"a": address})).connect()
        receiver.close()
        assert len(list(iter(lambda: receiver.wait(0), None))) == 6


def test_several_senders_at_a_time_have_a_session_each() -> None:
    with listening() as (receiver, address):
        owners = [sender({f"line{number}": address}) for number in range(4)]
        found: dict[int, Result] = {}

        def measure(number: int) -> None:
            found[number] = owners[number].run()

        threads = [threading.Thread(target=measure, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        heard = {name for _ in range(4) for name in taken(receiver).lines}
        for each in owners:
            each.close()
    assert heard == {f"line{number}" for number in range(4)}
    for number, result in found.items():
        assert result.lines[f"line{number}"].returned.all()


def test_more_senders_than_the_listener_takes_are_refused() -> None:
    with (
        listening(sessions_max=1) as (_, address),
        sender({"a": address}) as own,
        sender({"b": address}) as other,
    ):
        own.connect()
        with pytest.raises(UdpfastError, match="1 senders measure already"):
            other.connect()


def test_more_memory_than_the_listener_gives_is_refused() -> None:
    with (
        listening(memory_bytes=4 << 20) as (_, address),
        sender({"a": address}, rate_per_s=1e6, seconds=1) as own,
        pytest.raises(UdpfastError, match="MiB"),
    ):
        own.connect()


def test_sender_that_may_not_measure_is_not_answered() -> None:
    with listening(senders=["10.0.0.1"]) as (receiver, address):
        with sender({"a": address}) as own, pytest.raises(UdpfastError, match="expected an answer"):
            own.connect(0.5)
        wait_until(lambda: receiver.strangers > 0)


def test_port_of_a_listener_is_not_shared() -> None:
    with listening() as (_, address), sender({"a": address}) as own:
        own.connect()
        with pytest.raises(OSError, match="in use"):
            Receiver([address])
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as thief:
            thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match="in use"):
                thief.bind(parse_endpoint(address))


def test_greeting_without_the_cookie_opens_nothing() -> None:
    with (
        listening() as (receiver, address),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other,
    ):
        for each in (own, other):
            each.settimeout(PATIENCE_S)
            each.connect(parse_endpoint(address))
        own.send(encode(Header(ProbeKind.HELLO, 0, 1), HELLO, padded=True))
        answer = own.recv(2000)
        challenge = parse_header(answer)
        assert challenge.kind is ProbeKind.CHALLENGE
        # Nothing to amplify, nothing to keep.
        assert len(answer) < CONTROL_BYTES
        assert receiver.sessions == 0
        # Another address cannot use it.
        taken_on = encode(replace(challenge, kind=ProbeKind.HELLO), HELLO, padded=True)
        other.send(taken_on)
        assert parse_header(other.recv(2000)).kind is ProbeKind.CHALLENGE
        assert receiver.sessions == 0
        own.send(taken_on)
        assert parse_header(own.recv(2000)).kind is ProbeKind.WELCOME
        assert receiver.sessions == 1


@pytest.mark.parametrize("seed", range(3))
def test_strangers_are_counted_and_change_nothing(seed: int) -> None:
    chance = random.Random(seed)
    with listening() as (receiver, address), sender({"a": address}, seconds=600) as own:
        own.connect()
        results: list[Result] = []
        thread = threading.Thread(target=lambda: results.append(own.run()))
        thread.start()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.connect(parse_endpoint(address))
            for _ in range(300):
                stranger.send(_nonsense(chance))
        wait_until(lambda: receiver.strangers > 10, "strangers")
        wait_until(lambda: own.live()["a"]["echoes"] > 50, "echoes")
        own.stop()
        thread.join()
    line = results[0].lines["a"]
    assert line.arrived.all()
    assert line.counts["listener_strangers"] == line.counts["listener_malformed"] == 0


def _nonsense(chance: random.Random) -> bytes:
    kind = chance.randrange(12)
    header = HEADER.pack(
        0x31574655, kind, chance.randrange(256), 0, *(chance.getrandbits(64) for _ in range(3)),
        *(chance.getrandbits(62) for _ in range(3)), chance.getrandbits(64),
    )  # fmt: skip
    return chance.choice(
        [
            b"",
            chance.randbytes(chance.randrange(1500)),
            header,
            header + chance.randbytes(CONTROL_BYTES - len(header)),
            encode(Header(ProbeKind.HELLO, 255, 1), b"{", padded=True),
        ]
    )


def _session(address: str, stack: contextlib.ExitStack) -> tuple[socket.socket, Header]:
    """Take part by hand: return a connected socket, and the header with nonce and cookie."""
    own = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    own.settimeout(PATIENCE_S)
    own.connect(parse_endpoint(address))
    own.send(encode(Header(ProbeKind.HELLO, 0, 77), HELLO, padded=True))
    header = parse_header(own.recv(2000))
    own.send(encode(replace(header, kind=ProbeKind.HELLO), HELLO, padded=True))
    header = parse_header(own.recv(2000))
    assert header.kind is ProbeKind.WELCOME
    return own, header


def _probe(header: Header, index: int, size: int = 128, **more: int) -> bytes:
    fields = {
        "kind": ProbeKind.PROBE,
        "line": header.line,
        "nonce": 77,
        "cookie": header.cookie,
        **more,
    }
    return HEADER.pack(
        0x31574655, fields["kind"], fields["line"], 0, fields["nonce"], fields["cookie"], index, 5,
        0, 0, 0,
    ).ljust(size, b"\0")  # fmt: skip


def test_listener_counts_what_is_no_probe_of_its_session_and_answers_none() -> None:
    with contextlib.ExitStack() as stack:
        receiver, address = stack.enter_context(listening())
        own, header = _session(address, stack)
        own.send(_probe(header, 100))  # beyond the run
        own.send(_probe(header, 2**64 - 1))
        own.send(_probe(header, 1, size=129))
        own.send(b"short")
        own.send(_probe(header, 1, size=2200))  # longer than any
        own.send(_probe(header, 1, cookie=header.cookie ^ 1))
        own.send(_probe(header, 1, nonce=78))
        own.send(_probe(header, 1, line=1))
        own.send(_probe(header, 7))
        echo = own.recv(3000)
        assert HEADER.unpack_from(echo)[6] == 7
        assert HEADER.unpack_from(echo)[1] == ProbeKind.ECHO
        (counts,) = receiver.live()
        assert (counts["malformed"], counts["strangers"], counts["distinct"]) == (5, 3, 1)
        # A time of the far past or future is a number, and no more.
        for index, sent in enumerate((-(2**63), 2**63 - 1, 0)):
            data = bytearray(_probe(header, 20 + index))
            data[32:40] = sent.to_bytes(8, "little", signed=True)
            own.send(data)
            own.recv(3000)
        own.send(encode(replace(header, kind=ProbeKind.BYE), padded=True))
        found = taken(receiver)
        assert found.lines["line"].arrived.sum() == 4


def test_listener_counts_duplicates_and_what_comes_late() -> None:
    with contextlib.ExitStack() as stack:
        receiver, address = stack.enter_context(listening())
        own, header = _session(address, stack)
        for index in (0, 1, 1, 4, 2, 3, 5, 1):
            own.send(_probe(header, index))
        arrivals = [HEADER.unpack_from(own.recv(3000))[10] for _ in range(8)]
        assert arrivals == list(range(1, 9))
        (counts,) = receiver.live()
        assert (counts["duplicates"], counts["reordered"], counts["distinct"]) == (2, 2, 6)


def test_listener_that_is_stopped_says_what_it_had_counted() -> None:
    with contextlib.ExitStack() as stack:
        receiver, address = stack.enter_context(listening())
        own, header = _session(address, stack)
        for index in (0, 1, 1, 4, 2):
            own.send(_probe(header, index))
            own.recv(3000)
        receiver.close()
        data = own.recv(3000)
    told, report = parse_header(data), decode_body(data, Report)
    assert (told.kind, told.line, told.cookie) == (ProbeKind.REPORT, 0, header.cookie)
    assert (report.distinct, report.duplicates, report.reordered) == (4, 1, 1)


def test_listener_that_is_back_after_it_gave_up_has_another_epoch() -> None:
    epochs = []
    with contextlib.ExitStack() as stack:
        receiver, address = stack.enter_context(listening())
        for _ in range(2):
            own, header = _session(address, stack)
            own.send(_probe(header, 0))
            epochs.append(HEADER.unpack_from(own.recv(3000))[3])
            own.send(encode(replace(header, kind=ProbeKind.BYE), padded=True))
            taken(receiver)
    assert epochs == [1, 2]


@pytest.mark.parametrize(
    "wrong",
    [
        {"rate_per_s": 0},
        {"rate_per_s": float("nan")},
        {"size_bytes": 63},
        {"size_bytes": 2049},
        {"train": 0},
        {"train": 65},
        {"seconds": 0},
        {"rate_per_s": 1e6, "seconds": 100},
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        sender({"a": "127.0.0.1:7007"}, **wrong)


@pytest.mark.parametrize("name", ["", "a b", "x" * 33, "<b>"])
def test_names_of_lines_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="name"):
        sender({name: "127.0.0.1:7007"})


@pytest.mark.parametrize(
    "to",
    ["", "x", "::1", "0.0.0.0", "255.255.255.255", "224.0.0.1", "fe80::1%lo", "10.255.255.1",
     "127.0.0.1\0", "\u0661.1.1.1", "1" * 64, "127.0.0.2"],
)  # fmt: skip
def test_address_that_a_sender_claims_to_send_to_harms_nothing(to: str) -> None:
    with listening() as (receiver, address), contextlib.ExitStack() as stack:
        own = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        own.connect(parse_endpoint(address))
        own.settimeout(PATIENCE_S)
        hello = Hello(to, "line", 100, 128, 1e3, 1, Clock())
        own.send(encode(Header(ProbeKind.HELLO, 0, 77), hello, padded=True))
        header = parse_header(own.recv(2000))
        own.send(encode(replace(header, kind=ProbeKind.HELLO), hello, padded=True))
        # It may be refused, or the answer may come from elsewhere. Others are served as before.
        wait_until(lambda: receiver.sessions + receiver.refused > 0)
        with sender({"a": address}) as other:
            assert other.run().lines["a"].returned.all()


@pytest.mark.parametrize("name", ["\x1b[2J", "a b", "", "<script>", "x" * 33, "line\n"])
def test_name_that_no_line_may_have_is_a_stranger_s(name: str) -> None:
    with listening() as (receiver, address), contextlib.ExitStack() as stack:
        own = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        own.connect(parse_endpoint(address))
        own.settimeout(PATIENCE_S)
        hello = Hello("127.0.0.1", name, 100, 128, 1e3, 1, Clock())
        own.send(encode(Header(ProbeKind.HELLO, 0, 77), hello, padded=True))
        header = parse_header(own.recv(2000))
        own.send(encode(replace(header, kind=ProbeKind.HELLO), hello, padded=True))
        wait_until(lambda: receiver.strangers > 0)
        assert receiver.sessions == 0


def test_core_that_this_host_lacks_is_refused_at_both_ends() -> None:
    with pytest.raises(ConfigError, match=r"^core: expected a core of this host, .* found 9"):
        Receiver(["127.0.0.1:0"], core=9999)
    with pytest.raises(ConfigError, match=r"^core: expected a core of this host, .* found -"):
        Sender({"line": "127.0.0.1:9"}, core=-1)


@pytest.mark.parametrize("thread", ["_reflect", "_serve"])
@pytest.mark.parametrize("timeout_s", [0, PATIENCE_S, None])
def test_listener_whose_thread_fails_says_so(
    thread: str, timeout_s: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: Receiver) -> None:
        raise MemoryError("no room")

    monkeypatch.setattr("sys.excepthook", lambda *_: None)
    monkeypatch.setattr(Receiver, thread, fails)
    with listening() as (receiver, _):
        if timeout_s == 0:
            wait_until(lambda: receiver._failure is not None)
        for _again in range(2):
            with pytest.raises(UdpfastError, match=r"^the listener failed: no room$"):
                receiver.wait(timeout_s)


def test_sender_runs_once() -> None:
    with listening() as (_, address), sender({"a": address}) as own:
        own.run()
        with pytest.raises(RuntimeError, match="once"):
            own.run()


def test_ipv6_is_measured_as_well() -> None:
    try:
        stack = contextlib.ExitStack()
        _, address = stack.enter_context(listening("[::1]:0"))
    except OSError:
        pytest.skip("no IPv6 here")
    with stack, sender({"a": address}) as own:
        assert own.run().lines["a"].returned.all()

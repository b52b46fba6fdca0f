"""The listener: it lets senders take part, sends echoes, and tells what arrived.

One thread runs the loop and touches no Python. Another one, here, talks with senders: it opens a
socket for each line of a session, connected to the sender, so that the kernel itself keeps
strangers' datagrams away from the loop. All that a stranger can use up is bounded: a turn takes a
few greetings, and memory is taken for those alone who receive at the address that they send from.
"""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
from msgspec import Struct, field
from msgspec.structs import replace

from udpfast.core.core_number import check_allowed
from udpfast.core.endpoint import endpoint_text, parse_endpoint, parse_sender
from udpfast.core.worker import Worker
from udpfast.errors import ConfigError, FormatError, UdpfastError, sentence
from udpfast.net import options
from udpfast.net.line import LineAddress, ReceiveOptions, open_receiver
from udpfast.probe.control import (
    ANSWER_PROBES,
    CONTROL_BYTES,
    REPORT_INDEX,
    Clock,
    Header,
    Hello,
    ProbeKind,
    Refused,
    Report,
    Welcome,
    cookie_of,
    decode_body,
    encode,
    parse_header,
)
from udpfast.probe.measured import arrived_only
from udpfast.probe.outgoing import LINES_MAX
from udpfast.probe.own_clock import own_clock
from udpfast.probe.reflector import TRACKS_MAX, Reflector
from udpfast.probe.result import Result
from udpfast.probe.sender import RECEIVE_QUEUE_BYTES
from udpfast.shm.histogram import LatencyHistogram

__all__ = ["Receiver"]

#: A probe of a line takes so many bytes, 20 while it is measured and the rest when its result is
#: made; the rest of a line, its batch and histograms.
PROBE_BYTES, LINE_BYTES = 80, 1 << 20
GREETINGS_QUEUE_BYTES = 1 << 18
#: Greetings of a turn, and how long a turn waits at least: 3,200 greetings/s, 5 % of a core.
GREETINGS_PER_TURN, TURN_S, UNUSED_TURN_S = 16, 0.005, 0.1
#: A session ends when none of its lines has brought a probe or a question for so long.
SILENCE_S = 30.0
#: The clock is asked for by a command: not for each greeting.
CLOCK_S = 10.0
#: Results that wait to be taken: as many as there may be sessions, which may end at once, at least.
RESULTS_MIN = 4


class _Line(Struct):
    hello: Hello
    cookie: int
    track: int
    sock: socket.socket
    peer: str
    stamps: str
    arrays: dict[str, npt.NDArray[Any]]
    began: int  # probes that had left before it was opened
    out: LatencyHistogram
    out_negative: LatencyHistogram

    def counted(self, counts: dict[str, int]) -> dict[str, Any]:
        """Return what `Receiver.live` has of it."""
        named = {"line": self.hello.name, "peer": self.peer}
        return counts | named | {"out": self.out, "out_negative": self.out_negative}


class _Session(Struct):
    hello: Hello
    heard_s: float
    arrivals: int = 0
    lines: dict[int, _Line] = field(default_factory=dict)


class _Door(Struct):
    """A socket that hears greetings, and where it listens."""

    where: LineAddress
    sock: socket.socket


class Receiver:
    """Listens for senders, from when it is made until `close`.

    Parameters
    ----------
    listen : sequence of LineAddress or str
        Where: "0.0.0.0:7007" hears all interfaces; with an interface (LineAddress), datagrams come
        and echoes leave by it alone. Port 0: any, see `addresses`.
    senders : sequence of str
        IP addresses that may measure; empty: everyone.
    sessions_max : int
        Senders at a time.
    memory_bytes : int
        For all open sessions together; a sender that would need more is refused. A result that
        waits for `wait` takes half as much at most.
    timestamps : str
        "auto", "hardware", "kernel" or "none", as `net.line.ReceiveOptions`.
    spin : bool
        While a sender measures, never give the core away.
    core : int, optional
        The core that the loop runs on.

    Raises
    ------
    ConfigError, OSError
        An address is wrong or taken, or this process may not use such a core.
    """

    def __init__(
        self,
        listen: Sequence[LineAddress | str] = ("0.0.0.0:7007",),
        *,
        senders: Sequence[str] = (),
        sessions_max: int = 8,
        memory_bytes: int = 1 << 30,
        timestamps: str = "auto",
        spin: bool = True,
        core: int | None = None,
    ) -> None:
        if not listen:
            raise ConfigError("a listener needs an address")
        check_allowed("core", core)
        self._allowed = {ipaddress.ip_address(parse_sender(each)[0]) for each in senders}
        self._sessions_max, self._memory_bytes = sessions_max, memory_bytes
        self._timestamps, self._spin, self._core = timestamps, spin, core
        self._secret = secrets.token_bytes(32)
        self._sessions: dict[int, _Session] = {}
        self._last: list[dict[str, Any]] = []
        # None wakes who waits: a thread has failed.
        self._ended: SimpleQueue[Result | None] = SimpleQueue()
        self._clock, self._clock_read_s = own_clock(), time.monotonic()
        self.strangers = self.refused = self.sessions = 0
        self._closing = False
        self._failure: Exception | None = None
        self._reflector = Reflector()
        self._doors: list[_Door] = []
        wanted = ReceiveOptions(rcvbuf_bytes=GREETINGS_QUEUE_BYTES, timestamps="none")
        try:
            for each in listen:
                where = LineAddress(each) if isinstance(each, str) else each
                self._refuse_twice(where)
                self._doors.append(_Door(where, open_receiver(where, wanted)[0]))
        except BaseException:
            self._close_doors()
            raise
        self._loop = Worker(lambda: self._live(self._reflect), "udpfast-wire")
        self._talk = Worker(lambda: self._live(self._serve), "udpfast-talk")
        self._loop.start()
        self._talk.start()

    def __enter__(self) -> Receiver:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def addresses(self) -> list[str]:
        """Where it listens, "ip:port"."""
        return [endpoint_text(*door.sock.getsockname()[:2]) for door in self._doors]

    @property
    def measuring(self) -> int:
        """Sessions that are open."""
        return len(self._sessions)

    def stop(self) -> None:
        """Have `close` find nothing to wait for; from any thread or handler."""
        self._closing = True

    def close(self) -> None:
        """End all sessions, whose results can still be taken, and close the sockets."""
        self._closing = True
        self._talk.finish()
        for nonce in list(self._sessions):
            self._end(nonce, early=True)
        self._reflector.stop()
        self._loop.finish()
        self._close_doors()

    def wait(self, timeout_s: float | None = None) -> Result | None:
        """Return what arrived in the next session that ended; None: none did meanwhile.

        A session ends when its sender says so, or was silent for half a minute. Of those that
        nobody takes the last `sessions_max`, four at least, are kept, and all that `close` ends.

        Parameters
        ----------
        timeout_s : float, optional
            None: wait until one ends.

        Raises
        ------
        UdpfastError
            The listener has failed, and sends no echoes any more.
        """
        found = None
        with contextlib.suppress(Empty):
            if self._failure is None or not self._ended.empty():
                block = timeout_s != 0
                found = self._ended.get(block, timeout_s if block else None)
        if found is None and self._failure is not None:
            said = sentence(self._failure) or type(self._failure).__name__
            raise UdpfastError(f"the listener failed: {said}") from self._failure
        return found

    def live(self) -> list[dict[str, Any]]:
        """Return what was counted so far on each line, from any thread.

        Returns
        -------
        list of dict
            Of the open sessions, and of those that have ended since the last one began:
            `Reflector.counts` with `line`, `peer`, and `out`, `out_negative`: its histograms.
        """
        found = [
            line.counted(self._reflector.counts(line.track))
            for session in list(self._sessions.values())
            for line in list(session.lines.values())
        ]
        # Read after those that are open: a session that ends meanwhile is in both, not in none.
        found += self._last
        return list({(each["line"], each["peer"]): each for each in found}.values())

    def _live(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as failure:
            self._failure = self._failure or failure
            self._closing = True
            self._ended.put(None)
            raise

    def _reflect(self) -> None:
        if self._core is not None:
            os.sched_setaffinity(0, {self._core})
        self._reflector.run(self._spin)

    def _refuse_twice(self, where: LineAddress) -> None:
        # The kernel would say that it is in use, as if another process had it. Port 0 is any.
        host, port = parse_endpoint(where.address)
        own = ipaddress.ip_address(host), port, where.interface
        for door in self._doors:
            taken, taken_port = parse_endpoint(door.where.address)
            if port and own == (ipaddress.ip_address(taken), taken_port, door.where.interface):
                raise ConfigError(f"expected different addresses, found {where.address} twice")

    def _close_doors(self) -> None:
        for door in self._doors:
            door.sock.close()

    # --- the thread that talks ---

    def _serve(self) -> None:
        socks = [door.sock for door in self._doors]
        while not self._closing:
            select.select(socks, [], [], TURN_S if self._sessions else UNUSED_TURN_S)
            for door in self._doors:
                self._greeted(door)
            self._read_mail()
            now = time.monotonic()
            for nonce, session in list(self._sessions.items()):
                if self._is_silent(session, now):
                    self._end(nonce, early=True)
            # However much comes: a turn is no shorter than this.
            time.sleep(TURN_S)

    def _greeted(self, door: _Door) -> None:
        for _ in range(GREETINGS_PER_TURN):
            try:
                data, peer = door.sock.recvfrom(CONTROL_BYTES + 1)
            except OSError:  # nothing more, or what a router said of an earlier answer
                return
            answer = self._greeting(door, data, peer)
            if answer:
                with contextlib.suppress(OSError):
                    door.sock.sendto(answer, peer)

    def _greeting(self, door: _Door, data: bytes, peer: tuple[Any, ...]) -> bytes:
        try:
            header = parse_header(data)
            if header.kind is not ProbeKind.HELLO or len(data) < CONTROL_BYTES:
                raise FormatError("expected a greeting")
            if self._allowed and ipaddress.ip_address(peer[0]) not in self._allowed:
                raise FormatError("expected an address that may measure")
            cookie = cookie_of(self._secret, peer[:2], header.nonce, header.line)
            if header.cookie != cookie:
                return encode(Header(ProbeKind.CHALLENGE, header.line, header.nonce, cookie))
            hello = decode_body(data, Hello)
        except (FormatError, ValueError):
            self.strangers += 1
            return b""
        told = Header(ProbeKind.WELCOME, header.line, header.nonce, cookie)
        try:
            reason = self._open(door, header, hello, peer)
        except OSError as error:
            reason = error.strerror or str(error)
        if reason:
            self.refused += 1
            told = Header(ProbeKind.REFUSED, header.line, header.nonce, cookie)
            return encode(told, Refused(reason[:200]))
        return encode(told, Welcome(self._now()))

    def _now(self) -> Clock:
        if time.monotonic() > self._clock_read_s + CLOCK_S:
            self._clock, self._clock_read_s = own_clock(), time.monotonic()
        return self._clock

    def _open(self, door: _Door, header: Header, hello: Hello, peer: tuple[Any, ...]) -> str:
        """Open a line of a session; return why not."""
        session = self._sessions.get(header.nonce)
        if session is None and len(self._sessions) >= self._sessions_max:
            return f"{len(self._sessions)} senders measure already"
        if header.line >= LINES_MAX:
            return f"a session has at most {LINES_MAX} lines"
        if session is not None and (session.hello.probes, session.hello.size) != (
            hello.probes,
            hello.size,
        ):
            return "the lines of a session must have as many probes of one size"
        lines = [line for each in self._sessions.values() for line in each.lines.values()]
        held = sum(line.hello.probes * PROBE_BYTES + LINE_BYTES for line in lines)
        wanted = hello.probes * PROBE_BYTES + LINE_BYTES
        if held + wanted > self._memory_bytes:
            return (
                f"{wanted >> 20} MiB for a line, {(self._memory_bytes - held) >> 20} MiB are left"
            )
        if session is not None and (before := session.lines.pop(header.line, None)):
            # It sends from another address now.
            self._reflector.close(before.track)
            before.sock.close()
        line = self._open_line(door, header, hello, peer)
        if line is None:
            return f"{TRACKS_MAX} lines are measured already"
        if session is None:
            self.sessions += 1
            self._last = []
            session = self._sessions[header.nonce] = _Session(hello, 0.0)
        session.lines[header.line] = line
        session.heard_s = time.monotonic()
        return ""

    def _open_line(
        self, door: _Door, header: Header, hello: Hello, peer: tuple[Any, ...]
    ) -> _Line | None:
        sock, stamps = self._connected(door, hello, peer)
        try:
            arrays: dict[str, npt.NDArray[Any]] = {
                "sent_ns": np.full(hello.probes, 0, np.int64),
                "reached_ns": np.full(hello.probes, 0, np.int64),
                "order": np.full(hello.probes, 0, np.uint32),
            }
            track = self._reflector.open(
                sock,
                arrays,
                nonce=header.nonce,
                cookie=header.cookie,
                line=header.line,
                size_bytes=hello.size,
                stamped=self._timestamps != "none",
            )
        except BaseException:
            sock.close()
            raise
        if track < 0:
            sock.close()
            return None
        peer_text, began = endpoint_text(*peer[:2]), min(header.index, hello.probes)
        histograms = self._reflector.histograms(track)
        return _Line(
            hello, header.cookie, track, sock, peer_text, stamps, arrays, began, *histograms
        )

    def _connected(
        self, door: _Door, hello: Hello, peer: tuple[Any, ...]
    ) -> tuple[socket.socket, str]:
        """Return a socket beside the door's, on its port, that hears this sender alone."""
        own = door.sock.getsockname()
        sock = socket.socket(door.sock.family, socket.SOCK_DGRAM)
        try:
            sock.setblocking(False)
            if door.where.interface:
                device = door.sock.getsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, 16)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
            options.set_receive_queue(sock, RECEIVE_QUEUE_BYTES)
            stamps = options.set_timestamps(sock, self._timestamps, door.where.interface).got
            if stamps != "none":
                options.set_drop_count(sock)
            # The door shares its port for this moment alone: another process never can.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            door.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                self._bind(sock, own, hello.to)
            finally:
                door.sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            sock.connect(peer)
        except BaseException:
            sock.close()
            raise
        return sock, stamps

    def _bind(self, sock: socket.socket, own: tuple[Any, ...], to: str) -> None:
        # Echoes come from the address that the sender sends to, of whatever line; behind NAT that
        # is not ours, and the route chooses.
        try:
            host, _ = parse_endpoint(endpoint_text(to, own[1]))
            sock.bind((host, own[1], *own[2:]))
        except ConfigError:
            sock.bind(own)
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            sock.bind(own)

    def _read_mail(self) -> None:
        for track, data in self._reflector.take_mail():
            found = next(
                (
                    (nonce, session, line)
                    for nonce, session in self._sessions.items()
                    for line in session.lines.values()
                    if line.track == track
                ),
                None,
            )
            if found is None:
                continue
            nonce, session, line = found
            try:
                header = parse_header(data)
                if header.cookie != line.cookie or len(data) < CONTROL_BYTES:
                    if header.kind is ProbeKind.HELLO:
                        # Its welcome was lost, or it does not know the cookie any more.
                        told = Header(ProbeKind.CHALLENGE, header.line, nonce, line.cookie)
                        self._tell(line, encode(told))
                    continue
                session.heard_s = time.monotonic()
                if header.kind is ProbeKind.BYE:
                    self._end(nonce)
                elif header.kind is ProbeKind.HELLO:
                    told = Header(ProbeKind.WELCOME, header.line, nonce, line.cookie)
                    self._tell(line, encode(told, Welcome(self._now())))
                elif header.kind is ProbeKind.ASK:
                    self._answer(session, line, header)
            except FormatError:
                self.strangers += 1

    def _answer(self, session: _Session, carrier: _Line, header: Header) -> None:
        line = session.lines.get(header.arrival) if header.arrival < LINES_MAX else None
        if line is None:
            return
        told = Header(
            ProbeKind.REPORT if header.index == REPORT_INDEX else ProbeKind.ANSWER,
            header.line,
            header.nonce,
            carrier.cookie,
            header.index,
            header.arrival,
        )
        if header.index == REPORT_INDEX:
            self._tell(carrier, encode(told, _report(line, self._reflector.counts(line.track))))
        elif header.index < line.hello.probes:
            part = line.arrays["reached_ns"][header.index : header.index + ANSWER_PROBES]
            self._tell(carrier, encode(told, np.packbits(part != 0, bitorder="little").tobytes()))

    def _tell(self, line: _Line, data: bytes) -> None:
        with contextlib.suppress(OSError):  # it is asked again
            line.sock.send(data)

    def _is_silent(self, session: _Session, now: float) -> bool:
        arrivals = sum(
            self._reflector.counts(line.track)["arrivals"] for line in session.lines.values()
        )
        if arrivals != session.arrivals:
            session.arrivals, session.heard_s = arrivals, now
        return now - session.heard_s > SILENCE_S

    def _end(self, nonce: int, *, early: bool = False) -> None:
        """End a session; `early`: before its sender has asked what arrived."""
        session = self._sessions[nonce]
        lines, ended = {}, []
        for number, line in session.lines.items():
            counts = self._reflector.close(line.track)
            ended.append(line.counted(counts))
            if early:
                told = Header(ProbeKind.REPORT, number, nonce, line.cookie, REPORT_INDEX, number)
                for _ in range(2):
                    self._tell(line, encode(told, _report(line, counts)))
            line.sock.close()
            where = LineAddress(line.peer)
            lines[line.hello.name] = (where, line.arrays, line.stamps, counts, line.began)
        self._last = [*self._last, *ended]
        del self._sessions[nonce]
        while not self._closing and self._ended.qsize() >= max(RESULTS_MIN, self._sessions_max):
            with contextlib.suppress(Empty):
                self._ended.get(block=False)
        hello = session.hello
        result = arrived_only(
            lines,
            rate_per_s=hello.rate,
            size_bytes=hello.size,
            train=hello.train,
            here=hello.clock,
            there=self._clock,
        )
        self._ended.put(replace(result, greetings_strange=self.strangers))


def _report(line: _Line, counts: dict[str, int]) -> Report:
    known = {name: counts[name] for name in Report.__struct_fields__ if name in counts}
    return Report(line.stamps, **known, began=line.began)

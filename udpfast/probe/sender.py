"""The sender of a run: it finds the listener, sends, takes the echoes, and asks what arrived."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import select
import time
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from udpfast.core.clock import monotonic_ns
from udpfast.core.core_number import check_allowed
from udpfast.core.endpoint import parse_endpoint
from udpfast.core.oserr import errno_text
from udpfast.core.worker import Worker
from udpfast.errors import ConfigError, FormatError, UdpfastError
from udpfast.net import options
from udpfast.net.departures import read_departures
from udpfast.net.line import LineAddress
from udpfast.net.sender import DatagramSender
from udpfast.page.words import literal
from udpfast.probe.control import (
    ANSWER_PROBES,
    HEADER,
    LINE_NAME,
    REPORT_INDEX,
    Clock,
    Header,
    Hello,
    ProbeKind,
    Refused,
    Report,
    Welcome,
    decode_body,
    encode,
    parse_header,
)
from udpfast.probe.measured import measured
from udpfast.probe.outgoing import LINES_MAX, Outgoing
from udpfast.probe.own_clock import own_clock
from udpfast.probe.result import Result
from udpfast.shm.histogram import LatencyHistogram

__all__ = ["COLUMNS", "SAMPLES_MAX", "TRAIN_MAX", "Sender"]

#: Probes of a run, on all lines together: 56 bytes each.
SAMPLES_MAX = 1 << 24
TRAIN_MAX = 64

RECEIVE_QUEUE_BYTES = 64 << 20
GREETING_S = 0.2
#: How long lines that are slow to answer are waited for, once one has.
OTHERS_S = 1.0
#: A line that was silent for so long may have another listener.
SILENCE_NS = 1_000_000_000
#: Questions at a time, and how often in vain before another line is tried.
WINDOW, TRIES = 16, 6

#: What is kept of each probe on each line.
COLUMNS = {
    "sent_ns": np.int64,
    "departed_ns": np.int64,
    "reached_ns": np.int64,
    "turned_ns": np.int64,
    "returned_ns": np.int64,
    "back_ns": np.int64,
    "out_order": np.uint32,
    "back_order": np.uint32,
}


class _Line:
    """One line at the sender: its socket, and what the listener has said on it."""

    def __init__(self, name: str, where: LineAddress, timestamps: str) -> None:
        self.name, self.where = name, where
        self.sender = DatagramSender(where.address, interface=where.interface)
        sock = self.sock = self.sender.socket
        options.set_receive_queue(sock, RECEIVE_QUEUE_BYTES)
        self.stamps = options.set_timestamps(sock, timestamps, where.interface).got
        self.cookie = 0
        self.cookies: set[int] = set()  # of listeners that took part
        # Number of the first probe that a listener can have had, for each one of the run.
        self.starts: list[int] = []
        self.there: Clock | None = None
        self.report: Report | None = None
        # By cookie and first probe: of listeners that ended, or gave up, before they were asked.
        self.reports_before: dict[tuple[int, int], Report] = {}
        self.arrived: npt.NDArray[np.bool_] | None = None


class Sender:
    """Measures one or more lines to a listener (`Receiver`, or `udpfast wire listen`).

    Memory for all probes is taken here; sockets are open until `close`.

    Parameters
    ----------
    lines : mapping of str to LineAddress or str
        1..8 lines by name: where the listener is ("10.1.0.2:7007"), and as LineAddress also the
        interface by which datagrams leave.
    rate_per_s : float
        Probes per second and line, those of trains included.
    size_bytes : int
        Of a datagram's payload, 64..2048; an echo is as long.
    train : int
        Probes that leave back to back, 1..64.
    seconds : float
        How long probes are sent.
    timestamps : str
        "auto", "hardware", "kernel" or "none", as `net.line.ReceiveOptions`.
    spin : bool
        Never give the core away; False: sleep where there is time, a few 10 us late at times.
    core : int, optional
        The core that the loop runs on.

    Raises
    ------
    ConfigError
        An address, a name or a number is wrong, this process may not use such a core, or the run
        would have more than 2^24 probes.
    OSError
        A socket cannot be opened.
    """

    def __init__(
        self,
        lines: Mapping[str, LineAddress | str],
        *,
        rate_per_s: float = 1000.0,
        size_bytes: int = 128,
        train: int = 1,
        seconds: float = 10.0,
        timestamps: str = "auto",
        spin: bool = True,
        core: int | None = None,
    ) -> None:
        check_allowed("core", core)
        count = _check(lines, rate_per_s, size_bytes, train, seconds)
        self.rate_per_s, self.size_bytes, self.train = rate_per_s, size_bytes, train
        self._spin, self._core, self._stopped = spin, core, False
        self._lines: list[_Line] = []
        self._clock = own_clock()
        try:
            for name, where in lines.items():
                address = LineAddress(where) if isinstance(where, str) else where
                self._lines.append(_Line(name, address, timestamps))
            numbers = np.arange(count, dtype=np.int64) // train * train
            self._due_ns = (numbers * (1e9 / rate_per_s)).astype(np.int64)
            self._samples = [
                # Touched, so that no page is missing while it runs.
                {name: np.full(count, 0, kind) for name, kind in COLUMNS.items()}
                for _ in self._lines
            ]
            self._nonce = secrets.randbits(64)
            self._outgoing = Outgoing(
                [line.sender for line in self._lines],
                self._samples,
                self._due_ns,
                nonce=self._nonce,
                size_bytes=size_bytes,
                stamped=timestamps != "none",
                departs=[timestamps != "none"] * len(self._lines),
            )
        except BaseException:
            self.close()
            raise
        self._welcomed_at, self._refused = 0.0, ""

    def __enter__(self) -> Sender:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; once more does nothing."""
        for line in self._lines:
            line.sender.close()

    def stop(self) -> None:
        """Have `connect` or `run` send no more and end; once more: without waiting for echoes.

        From any thread or signal handler.
        """
        self._stopped = True
        self._outgoing.stop()

    def connect(self, wait_s: float = 10.0) -> list[str]:
        """Find the listener; lines that are slower than the first by a second are not waited for.

        Returns
        -------
        list of str
            Names of the lines on which it answered.

        Raises
        ------
        UdpfastError
            It did not answer on any line within `wait_s`, or refused to take part.
        """
        deadline = time.monotonic() + wait_s
        greeted = 0.0
        while not self._stopped:
            now = time.monotonic()
            missing = [line for line in self._lines if line.there is None]
            if not missing or (self._welcomed_at and now > self._welcomed_at + OTHERS_S):
                break
            if self._refused:
                raise UdpfastError(self._refused)
            if now > deadline:
                where = ", ".join(f"{line.where.address} by {line.name}" for line in missing)
                raise UdpfastError(
                    f"expected an answer within {wait_s:g} s, found none from {where}: "
                    "is `udpfast wire listen` running there?"
                )
            if now >= greeted + GREETING_S:
                greeted = now
                for line in missing:
                    self._say(line, self._hello(line))
            for number, data in self._hear(0.02):
                if self._take(number, data):
                    self._say(self._lines[number], self._hello(self._lines[number]))
        return [line.name for line in self._lines if line.there is not None]

    def run(self, linger_s: float = 1.0) -> Result:
        """Send all probes and return what was found; blocks until then.

        KeyboardInterrupt ends the run, and the result so far is returned; so does `stop`.

        Parameters
        ----------
        linger_s : float
            The run ends when nothing came back for so long, after the last probe: more than the
            longest round trip.

        Raises
        ------
        UdpfastError
            There is no listener.
        OSError
            No line can send any more.
        """
        if self._outgoing.start:
            raise RuntimeError("a sender runs once: make another")
        with contextlib.suppress(KeyboardInterrupt):
            if not any(line.there for line in self._lines):
                self.connect()
        failures: list[Exception] = []
        for number, line in enumerate(self._lines):
            line.starts += [0] if line.cookie else []
            self._outgoing.set_cookie(number, line.cookie)
            self._outgoing.set_greeting(number, self._hello(line))
            if line.stamps != "none":
                # From here on each datagram of the socket has a number: none leaves but the loop's.
                options.set_departures(line.sock)
        worker = Worker(lambda: self._send(linger_s, failures), "udpfast-wire")
        worker.start()
        greeted_ns = monotonic_ns()
        while True:
            try:
                if worker.join(0.1):
                    break
                greeted_ns = self._watch(greeted_ns)
            except KeyboardInterrupt:
                self.stop()
        if failures:
            raise failures[0]
        with contextlib.suppress(KeyboardInterrupt):
            self._ask_all()
        return self._result()

    def live(self) -> dict[str, dict[str, Any]]:
        """Return what was counted so far by line, from any thread.

        Returns
        -------
        dict of str to dict
            `Outgoing.counts` with `due`, `refusals` by reason, and `round_trip`: a copy of its
            histogram.
        """
        found = {}
        for number, line in enumerate(self._lines):
            histogram = LatencyHistogram()
            histogram.merge(self._outgoing.histograms[number])
            counts: dict[str, Any] = self._outgoing.counts(number)
            found[line.name] = counts | {
                "due": self._outgoing.due,
                "refusals": self._refusals(number),
                "round_trip": histogram,
            }
        return found

    def _refusals(self, number: int) -> dict[str, int]:
        refused = self._outgoing.refusals(number)
        return {errno_text(error): count for error, count in refused.items()}

    def _send(self, linger_s: float, failures: list[Exception]) -> None:
        try:
            if self._core is not None:
                os.sched_setaffinity(0, {self._core})
            self._outgoing.run(int(linger_s * 1e9), self._spin)
        except Exception as failure:
            failures.append(failure)

    def _watch(self, greeted_ns: int) -> int:
        """Take what is no echo; greet again where a line is silent. Return when that was."""
        for number, data in self._outgoing.take_mail():
            line, due = self._lines[number], self._outgoing.due
            before = line.cookie
            if self._take(number, data):
                if line.cookie != before:
                    line.starts.append(due)
                self._outgoing.set_cookie(number, line.cookie)
                self._outgoing.set_greeting(number, self._hello(line))
                self._outgoing.greet()
        now_ns = monotonic_ns()
        latest = [self._outgoing.counts(number)["latest_ns"] for number in range(len(self._lines))]
        silent = any(now_ns - max(each, greeted_ns) > SILENCE_NS for each in latest)
        if silent:
            self._outgoing.greet()
            return now_ns
        return greeted_ns

    def _hello(self, line: _Line) -> bytes:
        host, _ = parse_endpoint(line.where.address)
        hello = Hello(
            host,
            line.name,
            len(self._due_ns),
            self.size_bytes,
            self.rate_per_s,
            self.train,
            self._clock,
        )
        return encode(self._header(line, ProbeKind.HELLO), hello, padded=True)

    def _header(self, line: _Line, kind: ProbeKind, index: int = 0, of: int = 0) -> Header:
        return Header(kind, self._lines.index(line), self._nonce, line.cookie, index, of)

    def _take(self, number: int, data: bytes) -> bool:
        """Take a datagram of the listener; return whether the greeting has to be said again."""
        line = self._lines[number]
        try:
            header = parse_header(data)
            if header.nonce != self._nonce or header.line != number:
                return False
            if header.kind is ProbeKind.CHALLENGE:
                line.cookie = header.cookie
                return True
            if header.cookie != line.cookie:
                return False
            if header.kind is ProbeKind.WELCOME:
                line.there = decode_body(data, Welcome).clock
                line.cookies.add(line.cookie)
                self._welcomed_at = self._welcomed_at or time.monotonic()
            elif header.kind is ProbeKind.REPORT:
                report = decode_body(data, Report)
                line.reports_before[line.cookie, report.began] = report
            elif header.kind is ProbeKind.REFUSED and not line.cookies:
                reason = decode_body(data, Refused).reason
                refused = f"the listener at {line.where.address} refused: {literal(reason)}"
                self._refused = refused
        except FormatError:
            pass  # what a stranger sends is no trouble of ours
        return False

    def _say(self, line: _Line, data: bytes) -> None:
        # Nobody listens yet, or the queue is full: it is said again.
        with contextlib.suppress(OSError):
            line.sock.send(data)

    def _hear(self, timeout_s: float) -> list[tuple[int, bytes]]:
        ready, _, _ = select.select([line.sock for line in self._lines], [], [], timeout_s)
        heard = []
        for number, line in enumerate(self._lines):
            if line.sock in ready:
                with contextlib.suppress(OSError):
                    for _ in range(WINDOW):
                        heard.append((number, line.sock.recv(4096)))
        return heard

    def _ask_all(self) -> None:
        """Ask what arrived on each line: by the line that lost least, then by the next."""
        for line in self._lines:
            # Its stamps would wake every wait below.
            options.stop_stamps(line.sock)
            read_departures(line.sock.fileno())
        due = self._outgoing.due
        # A line whose welcome was lost may have been measured all the same.
        asked = [number for number, line in enumerate(self._lines) if line.cookie]
        questions = {(number, REPORT_INDEX) for number in asked}
        for number in asked:
            questions |= {(number, first) for first in range(0, due, ANSWER_PROBES)}
            self._lines[number].arrived = np.zeros(len(self._due_ns), dtype=np.bool_)
        by_echoes = sorted(asked, key=lambda number: -self._outgoing.counts(number)["echoes"])
        for carrier in by_echoes:
            self._ask(self._lines[carrier], questions)
        for number, _ in questions:
            self._lines[number].arrived = None
        for number in asked:
            for _ in range(2):
                self._say(
                    self._lines[number],
                    encode(self._header(self._lines[number], ProbeKind.BYE), padded=True),
                )

    def _ask(self, carrier: _Line, questions: set[tuple[int, int]]) -> None:
        trip_ns = self._outgoing.histograms[self._lines.index(carrier)].percentile(99)
        patience_s = 0.05 + 2e-9 * trip_ns
        tries = 0
        while questions and tries < TRIES:
            tries += 1
            for number, index in sorted(questions)[:WINDOW]:
                question = encode(self._header(carrier, ProbeKind.ASK, index, number), padded=True)
                self._say(carrier, question)
            deadline = time.monotonic() + patience_s
            window = min(len(questions), WINDOW)
            before = len(questions)
            while time.monotonic() < deadline and len(questions) > before - window:
                for number, data in self._hear(0.01):
                    self._answer(number, data, questions)
            if len(questions) < before:
                tries = 0

    def _answer(self, number: int, data: bytes, questions: set[tuple[int, int]]) -> None:
        try:
            header = parse_header(data)
            question = (header.arrival, header.index)
            if header.nonce != self._nonce or header.line != number or question not in questions:
                return
            line = self._lines[header.arrival]
            if header.kind is ProbeKind.REPORT:
                line.report = decode_body(data, Report)
            elif header.kind is ProbeKind.ANSWER and line.arrived is not None:
                part = line.arrived[header.index : header.index + ANSWER_PROBES]
                bits = np.frombuffer(data, np.uint8, offset=HEADER.size)
                if 8 * len(bits) < len(part):
                    return
                part[:] = np.unpackbits(bits, bitorder="little", count=len(part))
            else:
                return
            questions.discard(question)
        except FormatError:
            pass

    def _result(self) -> Result:
        return measured(
            [
                (
                    *(line.name, line.where, samples, line.report, line.arrived, line.stamps),
                    *(counts, self._refusals(number), line.starts),
                    list(line.reports_before.values()),
                )
                for number, (line, samples) in enumerate(
                    zip(self._lines, self._samples, strict=True)
                )
                if (counts := self._outgoing.counts(number)) is not None
            ],
            due_ns=self._due_ns[: self._outgoing.due],
            start_ns=self._outgoing.start,
            utc_offset_ns=self._outgoing.utc_offset,
            rate_per_s=self.rate_per_s,
            size_bytes=self.size_bytes,
            train=self.train,
            complete=self._outgoing.due == len(self._due_ns),
            listener_starts=max((len(line.cookies) for line in self._lines), default=0),
            here=self._clock,
            there=next((line.there for line in self._lines if line.there), Clock()),
        )


def _check(
    lines: Mapping[str, LineAddress | str],
    rate_per_s: float,
    size_bytes: int,
    train: int,
    seconds: float,
) -> int:
    """Return how many probes a run has; refuse what cannot be."""
    if not 1 <= len(lines) <= LINES_MAX:
        raise ConfigError(f"expected 1 to {LINES_MAX} lines, found {len(lines)}")
    for name in lines:
        if re.search(LINE_NAME, name) is None:
            raise ConfigError(
                f"a line's name must have 1 to 32 letters, digits, - or _, was {name!r}"
            )
    if not 64 <= size_bytes <= 2048:
        raise ConfigError(f"size must be 64 to 2048 bytes, was {size_bytes}")
    if not 1 <= train <= TRAIN_MAX:
        raise ConfigError(f"train must be 1 to {TRAIN_MAX} probes, was {train}")
    if not 0 < rate_per_s <= 1e9 or not 0 < seconds <= 1e6:
        raise ConfigError(f"rate and seconds must be above 0, were {rate_per_s} and {seconds}")
    count = max(round(rate_per_s * seconds / train), 1) * train
    if count * len(lines) > SAMPLES_MAX:
        raise ConfigError(
            f"a run has at most {SAMPLES_MAX:,} probes on all lines, {count * len(lines):,} were "
            "asked for: lower the rate, or measure more often for a shorter time"
        )
    return count

"""Which numbers a server was asked for, and which to ask for next. Passive: time is an argument.

the loop's holes -> what nobody was asked for lately -> requests, as quick as the venue allows
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from msgspec import Struct

__all__ = ["DAY_NS", "Asked", "Quota", "Request", "Settings"]

#: Requests without an answer, one behind the other, after which the server counts as silent.
SILENT_REQUESTS = 8


class Request(NamedTuple):
    """What to ask for: so many numbers of a stream, from `first` on."""

    stream: int
    first: int
    count: int  # type: ignore[assignment]  # hides tuple.count, as meant


class Settings(NamedTuple):
    """As `config.RetransmissionConfig` has them; a limit of 0 is none."""

    retry_ns: int
    requests_per_s: int
    messages_max: int
    requests_per_min: int = 0
    requests_per_day: int = 0
    in_pieces: bool = False  # one request is answered by as many datagrams as it takes


class Quota:
    """So many requests in any span of a length, wherever it begins.

    A part of them may come at once. The rest come evenly, so slowly that no span has more than the
    limit: venues count in spans of their own, of which nobody tells where they begin.

    Parameters
    ----------
    limit : int
        0: none.
    span_ns : int
    part : int
        That part of the limit may come at once: 10 is a tenth.
    """

    def __init__(self, limit: int, span_ns: int, part: int) -> None:
        self._limit = limit
        self._burst = max(1, limit // part)
        self._per_ns = (limit - self._burst + 1) / span_ns
        self._allowed = float(self._burst)
        self._last_ns: int | None = None

    def left(self, now_ns: int) -> bool:
        """Whether one more is allowed."""
        if self._last_ns is not None:
            self._allowed += (now_ns - self._last_ns) * self._per_ns
        self._allowed = min(self._allowed, float(self._burst))
        self._last_ns = now_ns
        return not self._limit or self._allowed >= 1

    def spend(self) -> None:
        """Count one."""
        self._allowed -= 1


DAY_NS = 86_400_000_000_000


class _Span(Struct):
    # Numbers that were asked for, and are not asked for again before `until_ns`.
    stream: int
    first: int
    last: int
    until_ns: int
    answered: bool = False
    # It was not answered with the rest, and is asked for again: an answer may come all the same.
    again: bool = False


class Asked:
    """What was asked for and may still come, and how the server answers.

    Attributes
    ----------
    unanswered : int
        Requests since the last answer of which nothing came in time.
    held_back : int
        Times that a request had to wait for the venue's limits.
    repeated : int
        Requests for numbers that were asked for before.
    """

    def __init__(self, settings: Settings) -> None:
        self.unanswered = self.held_back = self.repeated = 0
        self._settings = settings
        self._spans: list[_Span] = []
        self._quotas = (
            Quota(settings.requests_per_s, 1_000_000_000, 10),
            Quota(settings.requests_per_min, 60_000_000_000, 2),
            Quota(settings.requests_per_day, DAY_NS, 2),
        )
        self._paused_until_ns = 0
        self._is_held = False
        self._numberings: dict[int, int] = {}  # by stream

    @property
    def silent(self) -> bool:
        """Whether the server has not answered for so long that something is wrong with it."""
        return self.unanswered >= SILENT_REQUESTS

    def begin(self, stream: int, numbering: int) -> bool:
        """Forget what was asked for of a stream's other numberings; return whether it has begun."""
        if self._numberings.get(stream) == numbering:
            return False
        self._numberings[stream] = numbering
        self._spans = [span for span in self._spans if span.stream != stream]
        return True

    def look(self, holes: Iterable[tuple[int, int, int]], now_ns: int) -> list[Request]:
        """Return what to ask for now.

        Parameters
        ----------
        holes : iterable of (stream, first, last)
            What is missing, in order.
        now_ns : int
            Monotonic.
        """
        holes = list(holes)
        due = self._expire(holes, now_ns)
        requests: list[Request] = []
        for stream, first, last in holes:
            at = first
            while at <= last:
                span = self._span_at(stream, at)
                if span is not None:
                    at = span.last + 1
                    continue
                end = min(last, at + self._settings.messages_max - 1)
                for other in self._spans:
                    if not other.again and other.stream == stream and at < other.first <= end:
                        end = other.first - 1
                if not self._spend(now_ns):
                    self.held_back += not self._is_held
                    self._is_held = True
                    return requests
                self._is_held = False
                self._spans.append(_Span(stream, at, end, now_ns + self._settings.retry_ns))
                self.repeated += any(one == stream and at <= b and a <= end for one, a, b in due)
                requests.append(Request(stream, at, end - at + 1))
                at = end + 1
        return requests

    def answer(self, stream: int, first: int, count: int, now_ns: int) -> bool:
        """Note what an answer brought; return whether it was asked for.

        Where a server answers with what fits a datagram, the rest is asked for again at once.
        """
        last = first + count - 1
        found = False
        kept: list[_Span] = []
        for span in self._spans:
            if span.stream != stream or last < span.first or span.last < first:
                kept.append(span)
                continue
            found = True
            # The loop may not have taken it yet: these numbers look missing a little longer.
            low, high = max(first, span.first), min(last, span.last)
            kept.append(_Span(stream, low, high, now_ns + self._settings.retry_ns, True))
            again = not self._settings.in_pieces
            for a, b in ((span.first, low - 1), (high + 1, span.last)):
                if a <= b:
                    kept.append(_Span(stream, a, b, span.until_ns, True, again))
        if found:
            self._spans = kept
            self.unanswered = 0
        return found

    def refuse(self, stream: int, first: int, count: int, now_ns: int, pause_ns: int) -> None:
        """Note that the server will not send these: they are not asked for again for so long."""
        for span in self._spans:
            if span.stream == stream and span.first == first and span.last == first + count - 1:
                span.until_ns = now_ns + pause_ns
                span.answered = True
        self.unanswered = 0

    def pause(self, until_ns: int) -> None:
        """Ask for nothing until then: the server says that it has answered enough."""
        self._paused_until_ns = max(self._paused_until_ns, until_ns)

    def _span_at(self, stream: int, at: int) -> _Span | None:
        for span in self._spans:
            if not span.again and span.stream == stream and span.first <= at <= span.last:
                return span
        return None

    def _expire(self, holes: list[tuple[int, int, int]], now_ns: int) -> list[tuple[int, int, int]]:
        # Numbers whose time is over, so that they may be asked for again. Where the hole is there
        # no more, another line may have filled it: that says nothing of the server.
        over = [span for span in self._spans if span.until_ns <= now_ns]
        if not over:
            return []
        self._spans = [span for span in self._spans if span.until_ns > now_ns]
        for span in over:
            self.unanswered += not span.answered and any(
                stream == span.stream and first <= span.last and span.first <= last
                for stream, first, last in holes
            )
        return [(span.stream, span.first, span.last) for span in over]

    def _spend(self, now_ns: int) -> bool:
        if now_ns < self._paused_until_ns or not all(quota.left(now_ns) for quota in self._quotas):
            return False
        for quota in self._quotas:
            quota.spend()
        return True

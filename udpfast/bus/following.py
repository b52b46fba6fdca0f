"""The link on which a host copies its store: where from, when to reconnect, and how it ended."""

from __future__ import annotations

from collections.abc import Callable

from udpfast.bus.failures import Failures
from udpfast.bus.hello import Refuse, RefuseReason
from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.links import Carrier
from udpfast.bus.log import Store

__all__ = ["AHEAD_BYTES", "RETRY_MAX_NS", "Following"]

_MS = 1_000_000
#: Delay between two attempts to connect, doubled after each failure; a random part of it is waited.
RETRY_NS, RETRY_MAX_NS = 10 * _MS, 1000 * _MS
#: Bytes handed to a link beyond what its socket has accepted.
AHEAD_BYTES = 1 << 18


class Following:
    """The link to the host that this one copies from. There is at most one.

    Parameters
    ----------
    store, peers, carrier, draw, source, quarantine
        As for `Node`.

    Attributes
    ----------
    link : int or None
    receiver : LinkReceiver or None
    tried : str
        The host tried last.
    stop_reason : str
        Why this host copies from nobody until an operator intervenes; empty: it does copy.
    left : str
        The host that it copied from, if that host was stopped in good order since; empty: it was
        not, or this host copies again.
    failures : Failures
        Why links keep ending, if they do. It keeps trying, less and less often.
    damaged, reconnects, quarantined : int
        Number of links that ended because bytes had changed, of attempts to connect, and of records
        that were set aside.
    """

    def __init__(
        self,
        store: Store,
        peers: tuple[str, ...],
        carrier: Carrier,
        draw: Callable[[], int],
        *,
        source: str,
        quarantine: bool,
    ) -> None:
        self.link: int | None = None
        self.receiver: LinkReceiver | None = None
        self.tried = self.stop_reason = self.left = ""
        self.failures = Failures()
        self.damaged = self.reconnects = self.quarantined = 0
        self._store = store
        self._peers = peers
        self._carrier = carrier
        self._draw = draw
        self._source = source
        self._quarantine = quarantine
        # Position at which the writer's record is damaged, so that another copy must supply it, or
        # None.
        self._lacked: int | None = None
        self._retry_ns = 0
        self._delay_ns = RETRY_NS

    @property
    def comes(self) -> bool:
        """Whether records of the store arrive."""
        receiver = self.receiver
        return receiver is not None and receiver.following and not receiver.closed

    @property
    def source_end(self) -> int | None:
        """End of the store at the host that it copies from; None: there is no link."""
        return None if self.receiver is None else self.receiver.source_end

    @property
    def room(self) -> int:
        """Number of bytes that `received` takes."""
        return AHEAD_BYTES if self.receiver is None else self.receiver.room

    def connect(self, now_ns: int) -> None:
        """Begin a link to the host to copy from, if it is time."""
        if self.link is not None or self.stop_reason or now_ns < self._retry_ns or not self._peers:
            return
        if self._source:
            self.tried = self._source
        elif self._lacked is None and self._store.writer_host in self._peers and self._draw() % 2:
            self.tried = self._store.writer_host
        else:
            at = self._peers.index(self.tried) if self.tried in self._peers else -1
            self.tried = self._peers[(at + 1) % len(self._peers)]
        self.link = self._carrier.connect(self.tried)

    def connect_to(self, host: str, now_ns: int) -> None:
        """Begin a link to a given host, if it is time."""
        if self.link is None and now_ns >= self._retry_ns:
            self.tried = host
            self.link = self._carrier.connect(host)
            self._wait(now_ns)

    def opened(self, now_ns: int, receiver: LinkReceiver | None = None) -> None:
        """Send HELLO on the link that was begun, from a new LinkReceiver or the given one."""
        assert self.link is not None
        self.receiver = receiver or LinkReceiver(
            self._store, self._draw(), now_ns,
            any_source=bool(self._source) or self._lacked is not None,
        )  # fmt: skip
        self._carrier.send(self.link, self.receiver.output())

    def hurry(self) -> None:
        """Reset the delay between attempts to that after the first one."""
        self._delay_ns = RETRY_NS

    def carry(self) -> None:
        """Hand the receiver's output to the link, or to the thread that carries the link."""
        receiver = self.receiver
        assert receiver is not None
        assert self.link is not None
        if receiver.carried:
            receiver.attend()
            return
        self._carrier.send(self.link, receiver.output())
        if self.comes and self._carrier.carry(self.link, receiver):
            self._store.intake = receiver

    def broken(self, now_ns: int, *, promoting: bool) -> None:
        """Note that the link broke, or could not be made."""
        self.link = None
        if self.receiver is not None:
            self.receiver.close("the link broke")
            self.look(now_ns, promoting=promoting)
        self._wait(now_ns)

    def drop(self) -> None:
        """End the link: this host copies from nobody now."""
        if self.receiver is not None:
            self.receiver.close("not needed")
            self.receiver = None
        self._close()

    def look(self, now_ns: int, *, promoting: bool) -> None:
        """Note what became of the receiver; called each time after it got input.

        Parameters
        ----------
        now_ns : int
            Monotonic time.
        promoting : bool
            A promotion is under way, which handles refusals itself.
        """
        receiver = self.receiver
        if receiver is None:
            return
        if receiver.following:
            self._note_following(now_ns)
            if self._lacked is not None and self._store.end > self._lacked:
                self._lacked = None
                if self.tried != self._store.writer_host:
                    receiver.close("this copy has what the writer's lacks")
        if receiver.closed:
            self._end(receiver, now_ns)
            if receiver.refused is not None and not promoting:
                self._refused(receiver.refused)

    def _end(self, receiver: LinkReceiver, now_ns: int) -> None:
        if not receiver.failed:
            self.failures.broke()
        elif self.failures.ended(receiver.closed, self.tried, self._store.end):
            self._say(self.failures.reason)
        if receiver.left:
            self.left = self.tried
            self._say(f"{self.left} was stopped in good order: this copy ends at {self._store.end}")
        self.receiver = None
        self._close()
        self._wait(now_ns)
        self.damaged += receiver.damaged

    def _note_following(self, now_ns: int) -> None:
        if self.left:
            self._say(f"copies from {self.tried} again")
            self.left = ""
        failing = self.failures.reason
        if self.failures.follows(self._store.end, now_ns):
            self.hurry()
            if failing:
                self._say(f"copies again from {self.tried}")

    def _refused(self, refused: Refuse) -> None:
        reason, at = refused.reason, refused.at
        if reason is RefuseReason.DIVERGED:
            own = self._store.log.checksum_at(at) or 0
            self._say(
                f"differs from its source at position {at}: checksum {own:08x} here, "
                f"{refused.own:08x} there"
            )
            if self._quarantine:
                removed = self._store.cut(at)
                self.quarantined += removed
                self._say(f"set aside {removed} records from position {at} on")
            else:
                self.stop_reason = "diverged"
        elif reason is RefuseReason.FENCED:
            self._store.fence(at)
        elif reason is RefuseReason.DAMAGED and not self._source:
            self._lacked = at
        elif reason in (RefuseReason.WRONG_STORE, RefuseReason.LAYOUT, RefuseReason.GONE):
            self.stop_reason = reason.name.lower()
            self._say(f"cannot copy from its source: {reason.name}, position {at}")

    def _close(self) -> None:
        if self.link is not None:
            self._carrier.close(self.link)
            self.link = None

    def _wait(self, now_ns: int) -> None:
        # Set the delay before the next attempt.
        self._retry_ns = now_ns + self._delay_ns // 2 + self._draw() % self._delay_ns
        self._delay_ns = min(2 * self._delay_ns, RETRY_MAX_NS)
        self.reconnects += 1

    def _say(self, said: str) -> None:
        self._store.said.append(said)

"""Links of a node by kind: questions to other hosts, and links that serve copies of this host.

The third kind, the link on which this host itself copies, is in `bus.following`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from msgspec import Struct, field

from udpfast.bus.hello import Answer
from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.log import Store
from udpfast.bus.wire import LinkType, link_frame, link_parse

__all__ = ["Carrier", "Question", "Questions", "Serving"]


class Carrier(Protocol):
    """The transport between hosts. A link is a number, from `connect` or `Node.accepted`."""

    def connect(self, host: str) -> int:
        """Begin a link; `Node.opened` or `Node.broken` follows."""

    def send(self, link: int, data: bytes) -> None:
        """Send all of these bytes, as long as the link lives."""

    def room(self, link: int) -> int:
        """Return how many bytes the link takes without waiting."""

    def close(self, link: int) -> None:
        """End a link once everything sent is on its way. No event follows."""

    def datagram(self, host: str, data: bytes) -> None:
        """Send a datagram to the sequencer's port of a host."""

    def carry(self, link: int, end: LinkSender | LinkReceiver) -> bool:
        """Take over the bytes of an end that follows; False: this end cannot be carried (yet)."""


class Question(Struct):
    """A link that asks one host for its state: ASK is sent, ANSWER comes back, and it ends.

    Attributes
    ----------
    host : str
        The host asked.
    received : bytearray
        Bytes of the answer received so far.
    """

    host: str
    received: bytearray = field(default_factory=bytearray)


class Questions:
    """The questions to hosts that have not answered yet.

    Parameters
    ----------
    store : Store
        The store asked about; the epoch that this host has promised is asked of the others too.
    carrier : Carrier
    """

    def __init__(self, store: Store, carrier: Carrier) -> None:
        self._store = store
        self._carrier = carrier
        self._asked: dict[int, Question] = {}

    def __contains__(self, link: int) -> bool:
        """Return whether a link belongs to a question."""
        return link in self._asked

    @property
    def hosts(self) -> set[str]:
        """Hosts that were asked and have not answered."""
        return {question.host for question in self._asked.values()}

    def ask(self, hosts: Iterable[str]) -> None:
        """Ask hosts for their state, and to promise what this host has promised."""
        for host in hosts:
            self._asked[self._carrier.connect(host)] = Question(host)

    def ask_again(self, hosts: Iterable[str]) -> None:
        """Ask hosts again, one question per host: an unanswered earlier one is abandoned."""
        for host in hosts:
            for link in [at for at, question in self._asked.items() if question.host == host]:
                self.close(link)
            self.ask([host])

    def opened(self, link: int) -> None:
        """Send the question on a link that `ask` began."""
        promised, identity = self._store.promised, self._store.identity
        self._carrier.send(link, link_frame(LinkType.ASK, 0, promised, identity))

    def received(self, link: int, data: bytes) -> tuple[str, Answer] | None:
        """Take bytes of an answer; return the host and its answer once it is complete."""
        question = self._asked[link]
        question.received += data
        try:
            found = link_parse(bytes(question.received))
        except ValueError:
            self.close(link)
            return None
        if found is None:
            return None
        self.close(link)
        frame = found[0]
        return (question.host, Answer.unpack(frame.body)) if frame.type == LinkType.ANSWER else None

    def broken(self, link: int) -> None:
        """Note that a link broke."""
        self._asked.pop(link, None)

    def close(self, link: int) -> None:
        """Abandon one question."""
        self._asked.pop(link, None)
        self._carrier.close(link)

    def close_all(self) -> None:
        """Abandon all questions."""
        for link in list(self._asked):
            self.close(link)


class Serving:
    """The links that serve copies of this host.

    Parameters
    ----------
    store : Store
    carrier : Carrier
    draw : callable
        Returns 64 random bits.
    """

    def __init__(self, store: Store, carrier: Carrier, draw: Callable[[], int]) -> None:
        self._store = store
        self._carrier = carrier
        self._draw = draw
        self._senders: dict[int, LinkSender] = {}

    def __contains__(self, link: int) -> bool:
        """Return whether a link serves a copy."""
        return link in self._senders

    @property
    def senders(self) -> list[LinkSender]:
        """The sending end of each link."""
        return list(self._senders.values())

    def accepted(self, link: int, now_ns: int) -> None:
        """Take a link that another host began."""
        self._senders[link] = LinkSender(self._store, self._draw(), now_ns)

    def received(self, link: int, data: bytes, now_ns: int) -> None:
        """Take received bytes."""
        self._senders[link].feed(data, now_ns)

    def broken(self, link: int) -> None:
        """Note that a link broke."""
        sender = self._senders.pop(link, None)
        if sender is not None:
            sender.close("the link broke")

    def work(self, now_ns: int, unix_ns: int) -> None:
        """Let time pass: send each copy what is there, as far as its link takes it."""
        for link, sender in list(self._senders.items()):
            sender.work(now_ns, unix_ns)
            if sender.carried:
                sender.attend()
            else:
                room = self._carrier.room(link)
                data = sender.output(room) if room > 0 else b""
                if data:
                    self._carrier.send(link, data)
            if sender.closed:
                self._senders.pop(link, None)
                self._carrier.close(link)
            elif sender.following and not sender.carried:
                self._carrier.carry(link, sender)

    def stop(self) -> None:
        """Tell all copies that this host is being stopped in good order."""
        for link, sender in self._senders.items():
            sender.end()
            if sender.carried:
                sender.attend()
            else:
                self._carrier.send(link, sender.output())

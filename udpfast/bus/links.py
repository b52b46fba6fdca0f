"""Links of a node by their kind: questions to other hosts, and hosts that copy from this one.

The third kind is the one link on which this host copies itself: `bus.following`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from udpfast.bus.hello import Answer
from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.link_sender import LinkSender
from udpfast.bus.log import Store
from udpfast.bus.wire import LinkType, link_frame, link_parse

__all__ = ["Carrier", "Question", "Questions", "Serving"]


class Carrier(Protocol):
    """What carries bytes between hosts. A link is a number, from `connect` or `Node.accepted`."""

    def connect(self, host: str) -> int:
        """Begin a link; `Node.opened` or `Node.broken` follows."""

    def send(self, link: int, data: bytes) -> None:
        """Send bytes, all of them, as long as the link lives."""

    def room(self, link: int) -> int:
        """Return how many bytes the link takes without waiting."""

    def close(self, link: int) -> None:
        """End a link when what was sent is on its way; nothing follows."""

    def datagram(self, host: str, data: bytes) -> None:
        """Send a datagram to the sequencer's port of a host."""

    def carry(self, link: int, end: LinkSender | LinkReceiver) -> bool:
        """Take over the bytes of a link's end, which follows; False: not this one, or not yet."""


@dataclass(slots=True)
class Question:
    """A link on which one host was asked how far it is: ASK there, ANSWER back, and it is over.

    Attributes
    ----------
    host : str
    received : bytearray
        What of its answer has come.
    """

    host: str
    received: bytearray = field(default_factory=bytearray)


class Questions:
    """All hosts that were asked and have not answered.

    Parameters
    ----------
    store : Store
        What this host has promised is asked of the others, too.
    carrier : Carrier
    """

    def __init__(self, store: Store, carrier: Carrier) -> None:
        self._store = store
        self._carrier = carrier
        self._asked: dict[int, Question] = {}

    def __contains__(self, link: int) -> bool:
        """Return whether a link is of a question."""
        return link in self._asked

    @property
    def hosts(self) -> set[str]:
        """Who was asked and has not answered."""
        return {question.host for question in self._asked.values()}

    def ask(self, hosts: Iterable[str]) -> None:
        """Have other hosts promise to take nothing of epochs before this one's."""
        for host in hosts:
            self._asked[self._carrier.connect(host)] = Question(host)

    def ask_again(self, hosts: Iterable[str]) -> None:
        """Ask hosts anew: one has one question at a time, and what it did not answer is over."""
        for host in hosts:
            for link in [at for at, question in self._asked.items() if question.host == host]:
                self.close(link)
            self.ask([host])

    def opened(self, link: int) -> None:
        """Ask, on a link that `ask` began."""
        promised, identity = self._store.promised, self._store.identity
        self._carrier.send(link, link_frame(LinkType.ASK, 0, promised, identity))

    def received(self, link: int, data: bytes) -> tuple[str, Answer] | None:
        """Take bytes of an answer; return it with its host when it is whole."""
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
        """Note that a link is over."""
        self._asked.pop(link, None)

    def close(self, link: int) -> None:
        """End one question."""
        self._asked.pop(link, None)
        self._carrier.close(link)

    def close_all(self) -> None:
        """End all questions."""
        for link in list(self._asked):
            self.close(link)


class Serving:
    """Links of hosts that copy from this one.

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
        """Return whether a link is of a host that copies from this one."""
        return link in self._senders

    @property
    def senders(self) -> list[LinkSender]:
        """This host's end of each link."""
        return list(self._senders.values())

    def accepted(self, link: int, now_ns: int) -> None:
        """Take a link that another host began."""
        self._senders[link] = LinkSender(self._store, self._draw(), now_ns)

    def received(self, link: int, data: bytes, now_ns: int) -> None:
        """Take bytes that arrived."""
        self._senders[link].feed(data, now_ns)

    def broken(self, link: int) -> None:
        """Note that a link is over."""
        sender = self._senders.pop(link, None)
        if sender is not None:
            sender.close("the link broke")

    def work(self, now_ns: int, unix_ns: int) -> None:
        """Let time pass: send each host what there is, as far as its link takes it."""
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
        """Say goodbye to all of them: this host is being stopped in good order."""
        for link, sender in self._senders.items():
            sender.end()
            if sender.carried:
                sender.attend()
            else:
                self._carrier.send(link, sender.output())

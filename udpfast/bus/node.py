"""One host's part in one store: who writes it, whom this host follows, who follows this host.

A node decides; it has no socket, no clock and no file. Whoever holds it hands it what arrived and
the time, and carries out what it asks of its `Carrier`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from typing import Protocol

from udpfast.bus.creation import Decision, StoreCreation
from udpfast.bus.failures import Failures
from udpfast.bus.hello import Fenced, Refuse, RefuseReason
from udpfast.bus.log import Store
from udpfast.bus.outbox import OutboxSender, StreamWatch
from udpfast.bus.promotion import Promotion, PromotionState
from udpfast.bus.replication import LinkReceiver, LinkSender
from udpfast.bus.returning import Return, Returning
from udpfast.bus.sequencer import Sequencer
from udpfast.bus.wire import LinkType, epoch_after, link_frame, link_parse

__all__ = ["Carrier", "Node", "Role"]

_MS = 1_000_000
#: Between two attempts to connect: doubled after each that failed, a random part of it waited.
RETRY_NS, RETRY_MAX_NS = 10 * _MS, 1000 * _MS
#: A writer looks so often for hosts that do not follow it: one of them may write the store, too.
LOOK_NS = 1000 * _MS
#: Bytes that a link is given ahead of what its socket took.
AHEAD_BYTES = 1 << 18
NO_IDENTITY = bytes(16)


class Role(Enum):
    """What a node is to its store now: one at a time, and what it does follows from that.

    | role | asks others | copies from another host | takes messages |
    |---|---|---|---|
    | BEGINNING | who has the store | yes: that ends this role | no |
    | RETURNING | who wrote since, who has more | no | no |
    | PROMOTING | who has more; to fence all others | what it lacks | as before |
    | SEQUENCING | who does not follow it, at times | no | yes |
    | FED | nobody | no: a feed writes the store here | no |
    | FOLLOWING | nobody | yes, unless it has stopped | no |
    """

    BEGINNING = "beginning"
    RETURNING = "returning"
    PROMOTING = "promoting"
    SEQUENCING = "sequencing"
    FED = "fed"
    FOLLOWING = "following"


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


class Node:
    """One host's part in one store.

    Parameters
    ----------
    store : Store
    peers : sequence of str
        All other hosts that have the store.
    carrier : Carrier
    draw : callable
        Returns 64 random bits.
    source : str
        Follow this host, whatever it is; empty: whichever peer writes the store.
    quarantine : bool
        Set records aside that the writer's store does not have, and go on.

    Attributes
    ----------
    sequencer : Sequencer or None
    consumer : LinkReceiver or None
    sources : list of LinkSender
    watch : StreamWatch
    promotion : Promotion or None
    outcome : tuple of str
        What the last promotion came to, and who was not reached; empty: there was none, or it goes
        on.
    beginning : StoreCreation or None
    returning : Returning or None
        This host wrote the store before, and asks the others whether it writes on.
    waiting_for : str
        Why this host does not begin the store that it shall write, or does not write it on; empty:
        it does, or shall not.
    intact : bool
        Of what this host wrote nothing is lost, as far as it knows.
    written_by_feed : bool
        A feed on this host writes the store: this one follows nobody, and takes no messages.
    stop_reason : str
        Why it follows nobody any more, until somebody looks at it; empty: it does.
    left : str
        The host that it copied from, if that was stopped in good order since; empty: it was not, or
        another one is copied from now.
    failures : Failures
        Why links to its source end again and again, if they do; it tries on, ever more seldom.
    """

    def __init__(
        self,
        store: Store,
        peers: Sequence[str],
        carrier: Carrier,
        draw: Callable[[], int],
        *,
        source: str = "",
        quarantine: bool = False,
    ) -> None:
        self.store = store
        self.peers = tuple(peers)
        self.carrier = carrier
        self.sequencer: Sequencer | None = None
        self.consumer: LinkReceiver | None = None
        self.watch = StreamWatch(store)
        self.promotion: Promotion | None = None
        self.outcome: tuple[str, ...] = ()
        self.beginning: StoreCreation | None = None
        self.returning: Returning | None = None
        self.waiting_for = ""
        self.intact = True
        self.written_by_feed = False
        self.stop_reason = self.left = ""
        self.failures = Failures()
        self.damaged = self.reconnects = self.quarantined = 0
        self._draw = draw
        self._source = source
        # The writer's record at this position is damaged: another copy may have it. None: not so.
        self._lacked: int | None = None
        self._feeds = False  # a feed on this host writes the store, once it has it
        self._quarantine = quarantine
        self._sources: dict[int, LinkSender] = {}
        self._asked: dict[int, tuple[str, bytearray]] = {}  # link -> host, answer
        self._strangers: set[str] = set()  # hosts with another store of this name
        self._link: int | None = None  # of the consumer
        self._leader = ""  # whom it tried last
        self._retry_ns = 0
        self._delay_ns = RETRY_NS
        self._look_ns = 0

    @property
    def sources(self) -> list[LinkSender]:
        """Of the hosts that copy from this one."""
        return list(self._sources.values())

    @property
    def role(self) -> Role:
        """What it is to its store now."""
        if self.promotion is not None:
            return Role.PROMOTING
        if self.beginning is not None:
            return Role.BEGINNING
        if self.returning is not None:
            return Role.RETURNING
        if self.sequencer is not None:
            return Role.SEQUENCING
        return Role.FED if self.written_by_feed else Role.FOLLOWING

    @property
    def following(self) -> bool:
        """Whether the stream comes: from another host, or from this one's own sequencer."""
        if (
            self.sequencer is not None or self.written_by_feed
        ):  # also while it is promoted once more
            return self.store.writer
        return self.consumer is not None and self.consumer.following and not self.consumer.closed

    # --- the sequencer's host -------------------------------------------------------------------

    def start(
        self,
        now_ns: int,
        unix_ns: int,
        *,
        named: bool,
        intact: bool,
        feeds: bool = False,
        insist: bool = False,
    ) -> None:
        """Do this host's part, by what it has.

        Parameters
        ----------
        now_ns, unix_ns : int
        named : bool
            It shall begin the store, if nobody has it.
        intact : bool
            Of what this host wrote nothing can be lost: memory outlives a process, not the power,
            and no file was found damaged since.
        feeds : bool
            A feed on this host writes the store.
        insist : bool
            Begin without those hosts that cannot be reached.
        """
        store, self._feeds, self.intact = self.store, feeds, intact
        if store.identity == NO_IDENTITY or not (store.end or store.was_writer):
            if named:
                self.beginning = StoreCreation(self.peers, now_ns, insist=insist)
                self._go_on_beginning(now_ns, unix_ns)
        elif feeds:
            self.written_by_feed = True
        elif store.was_writer and not self.peers:
            self.resume(now_ns, unix_ns)
        elif store.was_writer and intact:
            self.returning = Returning(store, self.peers, now_ns)
            self._go_on_returning(now_ns, unix_ns)
        elif store.was_writer:
            self._wait_for_promote(
                "this host has been rebooted, has adopted a copy of its store, or lost some of "
                "what it wrote"
            )

    def _wait_for_promote(self, why: str) -> None:
        # Other copies may have more than what is left here.
        self.intact = False
        self.waiting_for = (
            f"{why}, so other copies may have more: run `udpfast bus promote` for the host that "
            "is to write")  # fmt: skip
        self._say(self.waiting_for)

    def _go_on_returning(self, now_ns: int, unix_ns: int) -> None:
        returning = self.returning
        assert returning is not None
        # Whoever connects may say it, too, that another host wrote since.
        decision = returning.decide(now_ns) if self.store.was_writer else Return.FOLLOW
        if decision is Return.WAIT:
            self._ask_again(returning.due(now_ns))
            return
        self._end_asking()
        if decision is Return.WRITE:
            missing = returning.missing(now_ns)
            if missing:
                self._say(
                    f"writes on without an answer from {', '.join(missing)}: if another host was "
                    "promoted meanwhile, this one follows it as soon as they meet"
                )
            self.resume(now_ns, unix_ns)
        elif decision is Return.FETCH:
            self._wait_for_promote(f"{returning.further} has records that this host lost")
        else:
            who = returning.later or "another host"
            self._say(f"{who} knows of a later epoch, so this host does not write on")

    def _go_on_beginning(self, now_ns: int, unix_ns: int) -> None:
        beginning = self.beginning
        assert beginning is not None
        if self.consumer is not None and self.consumer.following:
            self._end_asking()
            return
        decision = beginning.decide(now_ns, self.store.promised)
        if decision is Decision.WAIT:
            self._ask_who_has(beginning, now_ns)
        elif decision is Decision.BEGIN:
            self._end_asking()
            self._drop_consumer()
            self.store.log.create()
            self._write(0, now_ns, unix_ns)
            self._say("begins a new store")
        else:
            self._end_asking()
            self.waiting_for = (
                f"this host has nothing, and copies the store from {beginning.owner}; if no host "
                "writes it, choose one with `udpfast bus promote`")  # fmt: skip
            self._say(self.waiting_for)

    def _ask_who_has(self, beginning: StoreCreation, now_ns: int) -> None:
        self._ask_again(beginning.due(now_ns))
        unheard = beginning.unheard(now_ns)
        why = ""
        if unheard:
            why = (
                "this host has nothing, and begins the store once all others report that they have "
                f"nothing: still waiting for {', '.join(unheard)} (`udpfast bus run --begin` does "
                "not wait)")  # fmt: skip
        elif self.store.promised and beginning.missing(now_ns):
            why = self.waiting_for
        elif self.store.promised:
            why = (
                "no host has the store, although one of them wrote it: start the host that has "
                "it, or begin another one with `udpfast bus run --begin`")  # fmt: skip
        if why != self.waiting_for:
            self.waiting_for = why
            if why:
                self._say(why)

    def _ask_again(self, hosts: Iterable[str]) -> None:
        # A host has one question at a time: one that was not answered is over.
        for host in hosts:
            for link in [link for link, (asked, _) in self._asked.items() if asked == host]:
                self._close(link)
            self._ask([host])

    def _end_asking(self) -> None:
        self.beginning = self.returning = None
        self.waiting_for = ""
        for link in list(self._asked):
            self._close(link)

    def _write(self, epoch: int, now_ns: int, unix_ns: int) -> None:
        # Write the store from now on; what a feed writes has the epoch that its loop begins.
        self.beginning = self.returning = None
        self.waiting_for = ""
        if self._feeds:
            self._drop_consumer()
            self.written_by_feed = True
        elif epoch:
            self.lead(epoch, now_ns, unix_ns)
        else:
            self.resume(now_ns, unix_ns)

    def resume(self, now_ns: int, unix_ns: int) -> Sequencer:
        """Write the store on: this host did before, and nobody said that another one does."""
        epoch = max(self.store.promised, self.store.epoch)
        return self.lead(epoch_after(epoch, self._draw(), promoted=False), now_ns, unix_ns)

    def lead(self, epoch: int, now_ns: int, unix_ns: int) -> Sequencer:
        """Write the store from now on."""
        self._drop_consumer()
        self.left = ""
        self.intact = True  # of what it writes from now on
        self.sequencer = Sequencer(self.store, epoch, now_ns, unix_ns)
        return self.sequencer

    def promote(self, now_ns: int) -> Promotion:
        """Become the writer, if this host can; `work` goes on with it."""
        self._drop_consumer()
        self.outcome = ()
        self._delay_ns = RETRY_NS
        self.promotion = Promotion(self.store, self.peers, self._draw(), now_ns)
        self._ask_for(self.promotion)
        return self.promotion

    def _ask_for(self, promotion: Promotion) -> None:
        if promotion.asks:
            promotion.asks = False
            self._ask_again(self.peers)

    def _go_on_promoting(self, now_ns: int, unix_ns: int) -> None:
        promotion = self.promotion
        assert promotion is not None
        promotion.work(now_ns, unix_ns)
        self._ask_for(promotion)
        if promotion.links and self._link is None and now_ns >= self._retry_ns:
            self._leader = promotion.source
            self._link = self.carrier.connect(self._leader)
            self._wait(now_ns)
        if promotion.state not in (PromotionState.READY, PromotionState.REFUSED):
            return
        self._drop_consumer()
        for link in list(self._asked):
            self._close(link)
        self.promotion = None
        if promotion.state is PromotionState.READY:
            self.stop_reason = ""
            self._write(promotion.epoch, now_ns, unix_ns)
            self.end_promotion(
                f"now writes epoch {promotion.epoch:x}",
                *(f"{host} could not be reached" for host in promotion.unreachable),
            )
            return
        said = f"not promoted: {promotion.reason}"
        if promotion.silent:
            said += (
                "; no host writes the store now: run `udpfast bus promote` for "
                f"{promotion.furthest(self.store.host)}"
            )
        self.end_promotion(said)

    def end_promotion(self, *said: str) -> None:
        """Say what a promotion came to."""
        self.outcome = said
        self._say(*said)

    def _say(self, *said: str) -> None:
        self.store.said.extend(said)

    # --- links ----------------------------------------------------------------------------------

    def opened(self, link: int, now_ns: int) -> None:
        """Take a link that `connect` began."""
        if link in self._asked:
            self.carrier.send(
                link, link_frame(LinkType.FENCE, 0, self.store.promised, self.store.identity)
            )
        elif link == self._link:
            if self.promotion is not None:
                self.consumer = self.promotion.copy(self._leader, self._draw(), now_ns)
            else:
                self.consumer = LinkReceiver(
                    self.store, self._draw(), now_ns,
                    any_source=bool(self._source) or self._lacked is not None,
                )  # fmt: skip
            self.carrier.send(link, self.consumer.output())
        else:
            self.carrier.close(link)

    def accepted(self, link: int, now_ns: int) -> None:
        """Take a link that another host began."""
        self._sources[link] = LinkSender(self.store, self._draw(), now_ns)

    def room(self, link: int) -> int:
        """Return how many bytes `received` takes of a link."""
        if link == self._link and self.consumer is not None:
            return self.consumer.room
        return AHEAD_BYTES

    def received(self, link: int, data: bytes, now_ns: int) -> None:
        """Take bytes that arrived on a link, at most `room`."""
        if link in self._sources:
            self._sources[link].feed(data, now_ns)
        elif link == self._link and self.consumer is not None:
            self.consumer.feed(data, now_ns)
            self._look_at_consumer(now_ns)
        elif link in self._asked:
            self._answered(link, data, now_ns)

    def _answered(self, link: int, data: bytes, now_ns: int) -> None:
        host, received = self._asked[link]
        received += data
        try:
            found = link_parse(bytes(received))
        except ValueError:
            found = None
            self._close(link)
        if found is None:
            return
        self._close(link)
        if found[0].type == LinkType.FENCED:
            self._take_answer(host, Fenced.unpack(found[0].body), now_ns)

    def _take_answer(self, host: str, answer: Fenced, now_ns: int) -> None:
        if self.beginning is not None:
            has = answer.identity != NO_IDENTITY
            self.beginning.answered(host, has=has, now_ns=now_ns)
        if self.returning is not None:
            self.returning.note_answer(host, now_ns)
        if NO_IDENTITY not in (answer.identity, own := self.store.identity) and (
            answer.identity != own
        ):
            if host not in self._strangers:
                self._strangers.add(host)
                self._say(
                    f"{host} has another store of the same name: {answer.identity.hex()}, "
                    f"expected {own.hex()}")  # fmt: skip
            return
        self._strangers.discard(host)
        if self.returning is not None:
            self.returning.answered(host, answer, now_ns)
        if self.promotion is not None:
            self.promotion.answered(host, answer, now_ns)
        self.store.fence(answer.promised)

    def _ask(self, hosts: Iterable[str]) -> None:
        # Have other hosts promise to take nothing of epochs before this one's.
        for host in hosts:
            self._asked[self.carrier.connect(host)] = (host, bytearray())

    def broken(self, link: int, now_ns: int) -> None:
        """Note that a link is over, or could not be begun."""
        source = self._sources.pop(link, None)
        if source is not None:
            source.close("the link broke")
        self._asked.pop(link, None)
        if link == self._link:
            self._link = None
            if self.consumer is not None:
                self.consumer.close("the link broke")
                self._look_at_consumer(now_ns)
            self._wait(now_ns)

    def _close(self, link: int) -> None:
        self._sources.pop(link, None)
        self._asked.pop(link, None)
        self.carrier.close(link)

    # --- following ------------------------------------------------------------------------------

    def _wait(self, now_ns: int) -> None:
        # Before the next attempt.
        self._retry_ns = now_ns + self._delay_ns // 2 + self._draw() % self._delay_ns
        self._delay_ns = min(2 * self._delay_ns, RETRY_MAX_NS)
        self.reconnects += 1

    def _drop_consumer(self) -> None:
        if self.consumer is not None:
            self.consumer.close("not needed")
            self.consumer = None
        if self._link is not None:
            self.carrier.close(self._link)
            self._link = None

    def _look_at_consumer(self, now_ns: int) -> None:
        # After each time that it was given something.
        consumer = self.consumer
        if consumer is None:
            return
        if consumer.following:
            self.waiting_for = ""
            self._note_following(now_ns)
            if self._lacked is not None and self.store.end > self._lacked:
                self._lacked = None
                if self._leader != self.store.writer_host:
                    consumer.close("this copy has what the writer's lacks")
        if not consumer.closed:
            return
        if not consumer.failed:
            self.failures.broke()
        elif self.failures.ended(consumer.closed, self._leader, self.store.end):
            self._say(self.failures.reason)
        if consumer.left:
            self.left = self._leader
            self._say(f"{self.left} was stopped in good order: this copy ends at {self.store.end}")
        self.consumer = None
        if self._link is not None:
            self.carrier.close(self._link)
            self._link = None
        self._wait(now_ns)
        self.damaged += consumer.damaged
        if self.promotion is None and consumer.refused is not None:
            self._refused(consumer.refused)

    def _note_following(self, now_ns: int) -> None:
        if self.left:
            self._say(f"copies from {self._leader} again")
            self.left = ""
        failing = self.failures.reason
        if self.failures.follows(self.store.end, now_ns):
            self._delay_ns = RETRY_NS
            if failing:
                self._say(f"copies again from {self._leader}")

    def _refused(self, refused: Refuse) -> None:
        if refused.reason is RefuseReason.DIVERGED:
            at = refused.at
            own = self.store.log.checksum_at(at) or 0
            self._say(
                f"differs from its source at position {at}: checksum {own:08x} here, "
                f"{refused.own:08x} there"
            )
            if self._quarantine:
                removed = self.store.cut(at)
                self.quarantined += removed
                self._say(f"set aside {removed} records from position {at} on")
            else:
                self.stop_reason = "diverged"
        elif refused.reason is RefuseReason.FENCED:
            self.store.fence(refused.at)
        elif refused.reason is RefuseReason.DAMAGED and not self._source:
            self._lacked = refused.at
        elif refused.reason in (RefuseReason.WRONG_STORE, RefuseReason.LAYOUT, RefuseReason.GONE):
            self.stop_reason = refused.reason.name.lower()
            self._say(f"cannot copy from its source: {refused.reason.name}, position {refused.at}")

    def _follow(self, now_ns: int) -> None:
        if self._link is not None or self.stop_reason or now_ns < self._retry_ns or not self.peers:
            return
        if self._source:
            self._leader = self._source
        elif self._lacked is None and self.store.writer_host in self.peers and self._draw() % 2:
            self._leader = self.store.writer_host
        else:
            at = self.peers.index(self._leader) if self._leader in self.peers else -1
            self._leader = self.peers[(at + 1) % len(self.peers)]
        self._link = self.carrier.connect(self._leader)

    # --- datagrams ------------------------------------------------------------------------------

    def datagram(self, data: bytes, now_ns: int, unix_ns: int) -> bytes:
        """Take a datagram that arrived; return what its sender is told, if anything."""
        if self.sequencer is not None:
            return self.sequencer.receive(data, now_ns, unix_ns)
        return b""

    def add(self, outbox_sender: OutboxSender) -> None:
        """Bring an outbox's messages to the sequencer."""
        self.watch.add(outbox_sender)

    # --- time -----------------------------------------------------------------------------------

    def work(self, now_ns: int, unix_ns: int) -> None:
        """Let time pass: send what there is to send."""
        self._note_other_writer()
        self._decide(now_ns, unix_ns)
        self._copy(now_ns, unix_ns)
        if self.sequencer is not None:
            self._lead_on(self.sequencer, now_ns, unix_ns)
        self.store.look_at_standbys(now_ns)
        for link, source in list(self._sources.items()):
            self._serve(link, source, now_ns, unix_ns)
        self._send_messages(now_ns, unix_ns)

    def _note_other_writer(self) -> None:
        # A store that was fenced is written no more by this host's sequencer.
        if self.sequencer is None or self.store.writer:
            return
        if self.promotion is None or not self.promotion.epoch:
            self._say("another host writes the store, so this host follows it")
        self.sequencer = None

    def _decide(self, now_ns: int, unix_ns: int) -> None:
        # Go on with what decides whether this host becomes, or stays, the writer.
        role = self.role
        if role is Role.PROMOTING:
            self._go_on_promoting(now_ns, unix_ns)
        elif role is Role.BEGINNING:
            self._go_on_beginning(now_ns, unix_ns)
        elif role is Role.RETURNING:
            self._go_on_returning(now_ns, unix_ns)

    def _copy(self, now_ns: int, unix_ns: int) -> None:
        # Copy from another host, in the roles that do; a promotion works its own consumer.
        role = self.role
        if role in (Role.FOLLOWING, Role.BEGINNING):
            self._follow(now_ns)
        if self.consumer is not None and self._link is not None:
            if role is not Role.PROMOTING:
                self.consumer.work(now_ns, unix_ns)
            self._carry(self._link, self.consumer)
            self._look_at_consumer(now_ns)

    def _lead_on(self, sequencer: Sequencer, now_ns: int, unix_ns: int) -> None:
        if sequencer.full:
            sequencer.make_room(now_ns, unix_ns)
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            asked = {host for host, _ in self._asked.values()}
            self._ask(host for host in self.peers
                      if host not in self.store.links and host not in asked)  # fmt: skip

    def _send_messages(self, now_ns: int, unix_ns: int) -> None:
        # What is in the outboxes of this host's apps.
        self.watch.work()
        for outbox_sender in self.watch.outbox_senders:
            for datagram in outbox_sender.work(now_ns, self.following):
                self._bring(datagram, now_ns, unix_ns, outbox_sender)

    def _carry(self, link: int, consumer: LinkReceiver) -> None:
        # What it has to say goes to the link, or to the thread that has its bytes.
        if not consumer.carried:
            self.carrier.send(link, consumer.output())
            if consumer.following and not consumer.closed and self.carrier.carry(link, consumer):
                self.store.intake = consumer
        else:
            consumer.attend()

    def _serve(self, link: int, source: LinkSender, now_ns: int, unix_ns: int) -> None:
        source.work(now_ns, unix_ns)
        if source.carried:
            source.attend()
            if source.closed:
                self._close(link)
            return
        room = self.carrier.room(link)
        data = source.output(room) if room > 0 else b""
        if data:
            self.carrier.send(link, data)
        if source.closed:
            self._close(link)
        elif source.following:
            self.carrier.carry(link, source)

    def stop(self) -> None:
        """Say goodbye to who copies from here: this host is being stopped in good order."""
        for link, source in self._sources.items():
            source.end()
            if source.carried:
                source.attend()
            else:
                self.carrier.send(link, source.output())

    def _bring(
        self, datagram: bytes, now_ns: int, unix_ns: int, outbox_sender: OutboxSender
    ) -> None:
        if self.sequencer is not None:  # this host's own outboxes: no network
            told = self.sequencer.receive(datagram, now_ns, unix_ns)
            if told:
                outbox_sender.told(told)
        elif self.store.writer_host and self.store.writer_host != self.store.host:
            self.carrier.datagram(self.store.writer_host, datagram)

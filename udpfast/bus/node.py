"""One host's part in one store: who writes it, whom this host copies from, and who copies from it.

A node only decides; it has no socket, no clock and no file. Its owner passes in time and received
bytes, and provides a `Carrier` that does what the node asks for. The node's present task is its
`Role`. Each link is a question, serves a copy, or is the one on which this host copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from udpfast.bus.creation import Decision, StoreCreation
from udpfast.bus.following import AHEAD_BYTES, Following
from udpfast.bus.hello import Answer
from udpfast.bus.links import Carrier, Questions, Serving
from udpfast.bus.log import Store
from udpfast.bus.outbox_sender import OutboxSender, StreamWatch
from udpfast.bus.promotion import Promotion, PromotionState
from udpfast.bus.returning import Return, Returning
from udpfast.bus.role import AFTER, Event, Role
from udpfast.bus.sequencer import Sequencer
from udpfast.bus.wire import epoch_after
from udpfast.log.journal_header import NO_IDENTITY

__all__ = ["Node"]

#: How often a writer asks the hosts that do not follow it: one of them may be writing the store
#: too.
LOOK_NS = 1_000_000_000


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
        Copy from this host, writer or not; empty: from the peer that writes the store.
    quarantine : bool
        Set aside records that the writer's store does not have, and continue.

    Attributes
    ----------
    role : Role
    asking : StoreCreation or Returning or None
        What asks the other hosts to decide whether this host begins the store, or continues to
        write it.
    promotion : Promotion or None
    sequencer : Sequencer or None
        Kept while this host is promoted, if it wrote the store before.
    copying : Following
        The link on which this host copies.
    watch : StreamWatch
    outcome : tuple of str
        Result of the last promotion and the hosts that were not reached; empty: there was none, or
        it is under way.
    why_not_writing : str
        Why this host does not begin or continue to write the store although it was to; empty: it
        does, or it was not to.
    intact : bool
        As far as it knows, this host has everything that it wrote.
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
        self.role = Role.FOLLOWING
        self.asking: StoreCreation | Returning | None = None
        self.promotion: Promotion | None = None
        self.sequencer: Sequencer | None = None
        self.copying = Following(
            store, self.peers, carrier, draw, source=source, quarantine=quarantine
        )
        self.watch = StreamWatch(store)
        self.outcome: tuple[str, ...] = ()
        self.why_not_writing = ""
        self.intact = True
        self._draw = draw
        self._serves = Serving(store, carrier, draw)
        self._questions = Questions(store, carrier)
        self._before = Role.FOLLOWING  # its role again, if a promotion fails
        self._feeds = False  # a feed on this host writes the store, once it has it
        self._strangers: set[str] = set()  # hosts that have another store of this name
        self._look_ns = 0

    @property
    def written_by_feed(self) -> bool:
        """Whether a feed on this host writes the store, so that it takes no messages."""
        return self.role is Role.FED

    @property
    def stream_comes(self) -> bool:
        """Whether the stream arrives, from another host or from this host's own sequencer."""
        if self.sequencer is not None or self.written_by_feed:  # also during another promotion
            return self.store.writer
        return self.copying.comes

    def _note(self, event: Event) -> None:
        # Change the role after an event. The role before a promotion returns if that fails.
        if self.role is Role.PROMOTING and event is Event.OTHER_WRITES:
            self._before = Role.FOLLOWING
        if self.role is not Role.PROMOTING and event is Event.PROMOTED:
            self._before = self.role
        self.role = AFTER[self.role][event]

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
        """Begin this host's part, which depends on what it has.

        Parameters
        ----------
        now_ns, unix_ns : int
            Monotonic and UNIX time.
        named : bool
            bus.toml names this host to create the store if no host has it.
        intact : bool
            Nothing that this host wrote can be lost: it was not rebooted since (its memory outlives
            the process, but not a loss of power), and no damaged file was found.
        feeds : bool
            A feed on this host writes the store.
        insist : bool
            Create the store without the hosts that cannot be reached.
        """
        store, self._feeds, self.intact = self.store, feeds, intact
        if store.identity == NO_IDENTITY or not (store.end or store.was_writer):
            if named:
                self.asking = StoreCreation(self.peers, now_ns, insist=insist)
                self._note(Event.HAS_NOTHING)
                self._go_on_beginning(self.asking, now_ns, unix_ns)
        elif feeds:
            self._note(Event.FEED_WRITES)
        elif store.was_writer and not self.peers:
            self.write_on(now_ns, unix_ns)
        elif store.was_writer and intact:
            self.asking = Returning(store, self.peers, now_ns)
            self._note(Event.WROTE_BEFORE)
            self._go_on_returning(self.asking, now_ns, unix_ns)
        elif store.was_writer:
            self._wait_for_promote(
                "this host has been rebooted, has adopted a copy of its store, or lost some of "
                "what it wrote"
            )

    def _wait_for_promote(self, why: str) -> None:
        # The other copies may have records that this host has lost.
        self.intact = False
        self.why_not_writing = (
            f"{why}, so other copies may have more: run `udpfast bus promote` for the host that "
            "is to write")  # fmt: skip
        self._say(self.why_not_writing)

    def _go_on_returning(self, returning: Returning, now_ns: int, unix_ns: int) -> None:
        # A link from another host may also have told that it wrote since.
        decision = returning.decide(now_ns) if self.store.was_writer else Return.FOLLOW
        if decision is Return.WAIT:
            self._questions.ask_again(returning.due(now_ns))
            return
        self._end_asking()
        if decision is Return.WRITE:
            missing = returning.missing(now_ns)
            if missing:
                self._say(
                    f"continues to write without an answer from {', '.join(missing)}: if another "
                    "host was promoted meanwhile, this one follows it as soon as they meet"
                )
            self.write_on(now_ns, unix_ns)
        elif decision is Return.FETCH:
            self._wait_for_promote(f"{returning.further} has records that this host lost")
        else:
            who = returning.later or "another host"
            self._say(f"{who} knows of a later epoch, so this host does not continue to write")

    def _go_on_beginning(self, beginning: StoreCreation, now_ns: int, unix_ns: int) -> None:
        if self.copying.receiver is not None and self.copying.receiver.following:
            self._end_asking()
            return
        decision = beginning.decide(now_ns, self.store.promised)
        if decision is Decision.WAIT:
            self._ask_who_has(beginning, now_ns)
        elif decision is Decision.BEGIN:
            self._end_asking()
            self.copying.drop()
            self.store.log.create()
            self._begin_writing(now_ns, unix_ns)
            self._say("begins a new store")
        else:
            self._end_asking()
            self.why_not_writing = (
                f"this host has nothing, and copies the store from {beginning.owner}; if no host "
                "writes it, choose one with `udpfast bus promote`")  # fmt: skip
            self._say(self.why_not_writing)

    def _ask_who_has(self, beginning: StoreCreation, now_ns: int) -> None:
        self._questions.ask_again(beginning.due(now_ns))
        unheard = beginning.unheard(now_ns)
        why = ""
        if unheard:
            why = (
                "this host has nothing, and begins the store once all others report that they have "
                f"nothing: still waiting for {', '.join(unheard)} (`udpfast bus run --begin` does "
                "not wait)")  # fmt: skip
        elif self.store.promised and beginning.missing(now_ns):
            why = self.why_not_writing
        elif self.store.promised:
            why = (
                "no host has the store, although one of them wrote it: start the host that has "
                "it, or begin another one with `udpfast bus run --begin`")  # fmt: skip
        if why != self.why_not_writing:
            self.why_not_writing = why
            if why:
                self._say(why)

    def _end_asking(self) -> None:
        self.asking = None
        self.why_not_writing = ""
        self._note(Event.ASKING_ENDED)
        self._questions.close_all()

    def _begin_writing(self, now_ns: int, unix_ns: int, epoch: int = 0) -> None:
        # If a feed writes, its loop begins the epoch and `epoch` is ignored. 0: the next epoch.
        self.asking = None
        self.why_not_writing = ""
        if self._feeds:
            self.copying.drop()
            self._note(Event.FEED_WRITES)
        elif epoch:
            self.write_epoch(epoch, now_ns, unix_ns)
        else:
            self.write_on(now_ns, unix_ns)

    def write_on(self, now_ns: int, unix_ns: int) -> Sequencer:
        """Continue to write the store in a new epoch: no other host is known to write it."""
        epoch = max(self.store.promised, self.store.epoch)
        return self.write_epoch(epoch_after(epoch, self._draw(), promoted=False), now_ns, unix_ns)

    def write_epoch(self, epoch: int, now_ns: int, unix_ns: int) -> Sequencer:
        """Write this epoch of the store from now on."""
        self.copying.drop()
        self.copying.left = ""
        self.intact = True  # as far as what it writes from now on
        self._note(Event.WRITES)
        self.sequencer = Sequencer(self.store, epoch, now_ns, unix_ns)
        return self.sequencer

    def promote(self, now_ns: int) -> Promotion:
        """Begin to make this host the writer, if it can be; `work` continues the promotion."""
        self.copying.drop()
        self.outcome = ()
        self.copying.hurry()
        self._note(Event.PROMOTED)
        self.promotion = Promotion(self.store, self.peers, self._draw(), now_ns)
        self._ask_for(self.promotion)
        return self.promotion

    def _ask_for(self, promotion: Promotion) -> None:
        if promotion.asks:
            promotion.asks = False
            self._questions.ask_again(self.peers)

    def _go_on_promoting(self, promotion: Promotion, now_ns: int, unix_ns: int) -> None:
        promotion.work(now_ns, unix_ns)
        self._ask_for(promotion)
        if promotion.links:
            self.copying.connect_to(promotion.source, now_ns)
        if promotion.state in (PromotionState.READY, PromotionState.REFUSED):
            self.copying.drop()
            self._questions.close_all()
            self.promotion = None
            if promotion.state is PromotionState.READY:
                self._become_writer(promotion, now_ns, unix_ns)
            else:
                self.role = self._before
                self._say_refused(promotion)

    def _become_writer(self, promotion: Promotion, now_ns: int, unix_ns: int) -> None:
        self.copying.stop_reason = ""
        self._begin_writing(now_ns, unix_ns, promotion.epoch)
        self.report_promotion(
            f"now writes epoch {promotion.epoch:x}",
            *(f"{host} could not be reached" for host in promotion.unreachable),
        )

    def _say_refused(self, promotion: Promotion) -> None:
        said = f"not promoted: {promotion.reason}"
        if promotion.silent:
            said += (
                "; no host writes the store now: run `udpfast bus promote` for "
                f"{promotion.furthest(self.store.host)}"
            )
        self.report_promotion(said)

    def report_promotion(self, *said: str) -> None:
        """Report the result of a promotion."""
        self.outcome = said
        self._say(*said)

    def _say(self, *said: str) -> None:
        self.store.said.extend(said)

    # --- links ----------------------------------------------------------------------------------

    def opened(self, link: int, now_ns: int) -> None:
        """Take a link that `connect` began."""
        if link in self._questions:
            self._questions.opened(link)
        elif link == self.copying.link:
            receiver = None
            if self.promotion is not None:
                receiver = self.promotion.copy(self.copying.tried, self._draw(), now_ns)
            self.copying.opened(now_ns, receiver)
        else:
            self.carrier.close(link)

    def accepted(self, link: int, now_ns: int) -> None:
        """Take a link that another host began."""
        self._serves.accepted(link, now_ns)

    def room(self, link: int) -> int:
        """Return how many bytes of a link `received` takes."""
        return self.copying.room if link == self.copying.link else AHEAD_BYTES

    def received(self, link: int, data: bytes, now_ns: int) -> None:
        """Take at most `room` bytes that arrived on a link."""
        if link in self._serves:
            self._serves.received(link, data, now_ns)
        elif link == self.copying.link and self.copying.receiver is not None:
            self.copying.receiver.feed(data, now_ns)
            self._look_at_copy(now_ns)
        elif link in self._questions:
            answer = self._questions.received(link, data)
            if answer is not None:
                self._take_answer(*answer, now_ns)

    def broken(self, link: int, now_ns: int) -> None:
        """Note that a link broke, or could not be made."""
        self._serves.broken(link)
        self._questions.broken(link)
        if link == self.copying.link:
            self._note_copying()
            self.copying.broken(now_ns, promoting=self.role is Role.PROMOTING)

    def _look_at_copy(self, now_ns: int) -> None:
        # Called each time after the link on which this host copies got input.
        self._note_copying()
        self.copying.look(now_ns, promoting=self.role is Role.PROMOTING)

    def _note_copying(self) -> None:
        if self.copying.receiver is not None and self.copying.receiver.following:
            self.why_not_writing = ""

    def _take_answer(self, host: str, answer: Answer, now_ns: int) -> None:
        if isinstance(self.asking, StoreCreation):
            has = answer.identity != NO_IDENTITY
            self.asking.answered(host, has=has, now_ns=now_ns)
        elif self.asking is not None:
            self.asking.note_answer(host, now_ns)
        if self._is_stranger(host, answer.identity):
            return
        if isinstance(self.asking, Returning):
            self.asking.answered(host, answer, now_ns)
        if self.promotion is not None:
            self.promotion.answered(host, answer, now_ns)
        self.store.fence(answer.promised)

    def _is_stranger(self, host: str, identity: bytes) -> bool:
        # Return whether a host has another store of the same name; report that once.
        own = self.store.identity
        if identity == own or NO_IDENTITY in (identity, own):
            self._strangers.discard(host)
            return False
        if host not in self._strangers:
            self._strangers.add(host)
            self._say(
                f"{host} has another store of the same name: {identity.hex()}, expected {own.hex()}"
            )
        return True

    # --- datagrams ------------------------------------------------------------------------------

    def datagram(self, data: bytes, now_ns: int, unix_ns: int) -> bytes:
        """Take a datagram; return the reply to its sender, if any."""
        if self.sequencer is not None:
            return self.sequencer.receive(data, now_ns, unix_ns)
        return b""

    def add(self, outbox_sender: OutboxSender) -> None:
        """Send an outbox's messages to the sequencer from now on."""
        self.watch.add(outbox_sender)

    # --- time -----------------------------------------------------------------------------------

    def work(self, now_ns: int, unix_ns: int) -> None:
        """Let time pass: do and send whatever is due."""
        self._note_other_writer()
        self._decide(now_ns, unix_ns)
        self._copy(now_ns, unix_ns)
        if self.sequencer is not None:
            self._work_as_writer(self.sequencer, now_ns, unix_ns)
        self.store.look_at_standbys(now_ns)
        self._serves.work(now_ns, unix_ns)
        self._send_messages(now_ns, unix_ns)

    def _note_other_writer(self) -> None:
        # Once its store has been fenced, this host's sequencer writes no more.
        if self.sequencer is None or self.store.writer:
            return
        if self.promotion is None or not self.promotion.epoch:
            self._say("another host writes the store, so this host follows it")
        self.sequencer = None
        self._note(Event.OTHER_WRITES)

    def _decide(self, now_ns: int, unix_ns: int) -> None:
        # Continue whatever decides if this host becomes, or stays, the writer.
        if self.promotion is not None:
            self._go_on_promoting(self.promotion, now_ns, unix_ns)
        elif isinstance(self.asking, StoreCreation):
            self._go_on_beginning(self.asking, now_ns, unix_ns)
        elif self.asking is not None:
            self._go_on_returning(self.asking, now_ns, unix_ns)

    def _copy(self, now_ns: int, unix_ns: int) -> None:
        # Only FOLLOWING and BEGINNING connect here; a promotion drives its own link.
        copying = self.copying
        if self.role in (Role.FOLLOWING, Role.BEGINNING):
            copying.connect(now_ns)
        if copying.receiver is not None and copying.link is not None:
            if self.role is not Role.PROMOTING:
                copying.receiver.work(now_ns, unix_ns)
            copying.carry()
            self._look_at_copy(now_ns)

    def _work_as_writer(self, sequencer: Sequencer, now_ns: int, unix_ns: int) -> None:
        if sequencer.full:
            sequencer.make_room(now_ns, unix_ns)
        if now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            known = self._questions.hosts | self.store.links.keys()
            self._questions.ask(host for host in self.peers if host not in known)

    def _send_messages(self, now_ns: int, unix_ns: int) -> None:
        # Send the messages in the outboxes of this host's apps.
        self.watch.work()
        for outbox_sender in self.watch.outbox_senders:
            for datagram in outbox_sender.work(now_ns, self.stream_comes):
                self._bring(datagram, now_ns, unix_ns, outbox_sender)

    def stop(self) -> None:
        """Tell all copies of this host that it is being stopped in good order."""
        self._serves.stop()

    def _bring(
        self, datagram: bytes, now_ns: int, unix_ns: int, outbox_sender: OutboxSender
    ) -> None:
        if self.sequencer is not None:  # its own outboxes need no network
            told = self.sequencer.receive(datagram, now_ns, unix_ns)
            if told:
                outbox_sender.told(told)
        elif self.store.writer_host and self.store.writer_host != self.store.host:
            self.carrier.datagram(self.store.writer_host, datagram)

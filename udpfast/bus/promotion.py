"""How a host becomes the writer of a store: ask everyone, fence everyone, take what they have.

First every other host is asked how far it is, and nobody promises anything. If one has more than
this host, its link shows whether it can be copied from. Who cannot take over is refused here, and
whoever writes goes on.

Then every other host promises to take nothing of lower epochs any more; the old writer, if it can
be reached, ends there and then, for good. What is promised does not change any more, so whoever has
more than this host is copied from, to its end. Only then the new epoch begins. Hosts that cannot be
reached are named: what only they had is lost to the new epoch.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import replace

from udpfast.bus.hello import Answer, RefuseReason
from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.log import Store
from udpfast.bus.wire import epoch_after

__all__ = ["Promotion", "PromotionState"]

#: A host that did not answer for so long cannot be reached.
ANSWER_NS = 2_000_000_000
#: One that did not answer the first question gets so long for the second.
LATE_NS = 500_000_000
#: Refusals that do not last: the link before was not missed yet, or a copy is not so far yet.
PASSING = RefuseReason.NAME_IN_USE, RefuseReason.BEHIND


class PromotionState(enum.Enum):
    """How far it is."""

    ASKING = "asking"
    COMPARING = "comparing"
    FENCING = "fencing"
    COPYING = "copying"
    READY = "ready"
    REFUSED = "refused"


_LINKED = PromotionState.COMPARING, PromotionState.COPYING


class Promotion:
    """Makes this host the writer of a store. Links are the caller's; one per host is enough.

    Parameters
    ----------
    store : Store
    hosts : sequence of str
        All other hosts that have a copy of the store.
    random : int
        64 random bits, of which the epoch takes 24.
    now_ns : int
        Monotonic.

    Attributes
    ----------
    epoch : int
        The new one; 0: nobody was fenced yet.
    state : PromotionState
        READY: `Sequencer(store, promotion.epoch, ...)` may begin.
    asks : bool
        All hosts are to be asked, or asked again: set it to False then.
    answers : dict
        Host -> what it said.
    reason : str
        Why it was refused.
    silent : bool
        Nobody writes since: it was refused after others were fenced.
    source : str
        The host that has more than this one; empty: there is none.
    receiver : LinkReceiver or None
        To feed with what the host that `copy` was told sends, while `links`.
    """

    def __init__(self, store: Store, hosts: tuple[str, ...], random: int, now_ns: int) -> None:
        self.store = store
        self.epoch = 0
        self.state = PromotionState.ASKING
        self.answers: dict[str, Answer] = {}
        self.reason = ""
        self.silent = False
        self.asks = True
        self.source = ""
        self._put_off = ""  # why `source` does not give what it has, for now
        self._copied = ""  # the host at the other end of `receiver`
        self.receiver: LinkReceiver | None = None
        self._random = random
        self._hosts = hosts
        self._waiting = set(hosts)
        self._heard: set[str] = set()  # who answered the first question
        self._until_ns = now_ns + ANSWER_NS
        self._late_ns = self._reached_ns = 0
        self._work(now_ns)

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Hosts that did not answer."""
        return tuple(sorted(self._waiting))

    @property
    def links(self) -> bool:
        """Whether `source` is to be linked to."""
        return self.state in _LINKED and bool(self.source)

    def answered(self, host: str, answer: Answer, now_ns: int) -> None:
        """Take what a host said, on a link of its own, that was sent ASK with what was promised.

        That is the new epoch, once there is one.
        """
        if self.state not in (PromotionState.ASKING, PromotionState.FENCING):
            return
        if answer.promised < self.epoch:
            return  # asked before there was one
        self.answers[host] = answer
        self._waiting.discard(host)
        if self.epoch and answer.promised > self.epoch:
            self._refuse(
                f"{host} has promised a later epoch, {answer.promised:x}: another host may be "
                "writing"
            )
        self._work(now_ns)

    def work(self, now_ns: int, unix_ns: int) -> None:
        """Let time pass."""
        if self.receiver is not None:
            self.receiver.work(now_ns, unix_ns)
        self._work(now_ns)

    def _work(self, now_ns: int) -> None:
        if self.epoch and self.store.promised > self.epoch:
            self._refuse("another host is being promoted")
        if self.state is PromotionState.ASKING and (not self._waiting or now_ns >= self._until_ns):
            self._go_to(PromotionState.COMPARING, now_ns)
        if self.state is PromotionState.COMPARING:
            self._compare(now_ns)
        if self.state is PromotionState.FENCING and self._have_promised(now_ns):
            self._go_to(PromotionState.COPYING, now_ns)
        if self.state is PromotionState.COPYING:
            self._copy(now_ns)

    def _go_to(self, state: PromotionState, now_ns: int) -> None:
        self.state, self._reached_ns = state, now_ns

    def _compare(self, now_ns: int) -> None:
        # Whether this host can take over, before anybody promises anything.
        if self.store.writer or not self._is_behind(now_ns):
            if self.state is PromotionState.COMPARING:
                self._fence(now_ns)
        elif self.receiver is not None and self.receiver.following:
            self._fence(now_ns)

    def _fence(self, now_ns: int) -> None:
        known = (answer.promised for answer in self.answers.values())
        self.epoch = epoch_after(
            max(self.store.promised, self.store.epoch, *known), self._random, promoted=True
        )
        # This host follows nobody any more.
        self.store.fence(self.epoch)
        self._end_copy("compared")
        self._heard = set(self.answers)
        self.answers.clear()
        self._waiting = set(self._hosts)
        self._until_ns, self._late_ns = now_ns + ANSWER_NS, now_ns + LATE_NS
        self.asks = True
        self._go_to(PromotionState.FENCING, now_ns)

    def _have_promised(self, now_ns: int) -> bool:
        if now_ns >= self._until_ns or not self._waiting:
            return True
        return now_ns >= self._late_ns and not self._waiting & self._heard

    def _copy(self, now_ns: int) -> None:
        # What others have more than this host, of epochs that are over.
        self._correct()
        if not self._is_behind(now_ns) and self.state is PromotionState.COPYING:
            self._end_copy("copied")
            self.state = PromotionState.READY

    def _is_behind(self, now_ns: int) -> bool:
        # Whether another host has more; that is `source` then. Refused, if it cannot be had.
        store, receiver = self.store, self.receiver
        furthest = max(self.answers, key=self._how_far, default="")
        # An epoch of which nothing was written counts for nothing.
        written = max((epoch for epoch, _ in store.lineage.before(store.end)), default=0)
        own = any(store.identity), written, store.end
        if not furthest or self._how_far(furthest) <= own:
            self.source = ""
            if not any(store.identity):
                self._refuse("no host that could be reached has the store")
            return False
        if self.source != furthest:
            self.source, self._reached_ns, self._put_off = furthest, now_ns, ""
            if self._copied != furthest:
                self._end_copy(f"{furthest} has more")
        if receiver is not None and receiver.following and not receiver.closed:
            self._reached_ns, self._put_off = now_ns, ""
        elif now_ns - self._reached_ns >= ANSWER_NS:
            # It answered, and cannot be reached any more, or does not give what it has.
            if self._put_off:
                self._refuse_by(furthest)
                return False
            del self.answers[furthest]
            self._waiting.add(furthest)
        if receiver is not None and receiver.closed:
            self.receiver = None
            refused = receiver.refused
            if refused is not None and self._copied == furthest:
                self._put_off = refused.reason.name
                if refused.reason not in PASSING:
                    self._refuse_by(furthest)
        return True

    def _refuse_by(self, furthest: str) -> None:
        self._refuse(f"{furthest} has more records, and refuses to give them: {self._put_off}")

    def copy(self, host: str, nonce: int, now_ns: int) -> LinkReceiver:
        """Return the end of a new link to a host; to `source`, whenever there is none."""
        self._copied = host
        self.receiver = LinkReceiver(self.store, nonce, now_ns, drain=True)
        return self.receiver

    def _end_copy(self, why: str) -> None:
        if self.receiver is not None:
            self.receiver.close(why)
            self.receiver = None

    def _correct(self) -> None:
        # A source that lost its power since it answered may have less than it said.
        welcome = None if self.receiver is None else self.receiver.welcome
        if welcome is None or self._copied not in self.answers:
            return
        has = True, max((epoch for epoch, _ in welcome.lineage), default=0), welcome.end
        if has < self._how_far(self._copied):
            answer = self.answers[self._copied]
            self.answers[self._copied] = replace(answer, epoch=has[1], end=has[2])

    def _how_far(self, host: str) -> tuple[bool, int, int]:
        # A store without a record is further than none.
        answer = self.answers[host]
        return any(answer.identity), answer.epoch, answer.end

    def furthest(self, own: str) -> str:
        """Return the host that has most, as far as is known: `own`, if no other has more."""
        store = self.store
        far: Iterable[tuple[tuple[bool, int, int], bool, str]] = [
            ((any(store.identity), store.epoch, store.end), True, own),
            *((self._how_far(host), False, host) for host in self.answers),
        ]
        return max(far)[2]

    def _refuse(self, reason: str) -> None:
        if self.state is PromotionState.REFUSED:
            return
        self.state = PromotionState.REFUSED
        self.reason = reason
        # Unless a later epoch is known, which somebody else writes or is about to.
        known = (answer.promised for answer in self.answers.values())
        self.silent = 0 < self.epoch == max(self.store.promised, *known, 0)
        self._end_copy("refused")

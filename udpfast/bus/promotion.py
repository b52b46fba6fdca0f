"""How a host becomes the writer of a store: fence everyone, take what they have, begin an epoch.

First every other host promises to take nothing of lower epochs any more; the old writer, if it can
be reached, ends there and then, for good. What is promised does not change any more, so whoever has
more than this host is copied from, to its end. Only then the new epoch begins. Hosts that cannot be
reached are named: what only they had is lost to the new epoch.
"""

from __future__ import annotations

import enum
from dataclasses import replace

from udpfast.bus.hello import Fenced, RefuseReason
from udpfast.bus.log import Store
from udpfast.bus.replication import Consumer
from udpfast.bus.wire import epoch_after

__all__ = ["Promotion", "PromotionState"]

#: A host that did not answer for so long cannot be reached.
ANSWER_NS = 2_000_000_000


class PromotionState(enum.Enum):
    """How far it is."""

    ASKING = "asking"
    COPYING = "copying"
    READY = "ready"
    REFUSED = "refused"


class Promotion:
    """Makes this host the writer of a store. Links are the caller's; one per host is enough.

    Parameters
    ----------
    store : Store
    hosts : sequence of str
        All other hosts that have a copy of the store.
    random : int
        24 random bits, for the epoch.
    now_ns : int
        Monotonic.

    Attributes
    ----------
    epoch : int
        The new one.
    state : PromotionState
        READY: `Sequencer(store, promotion.epoch, ...)` may begin.
    answers : dict
        Host -> what it said.
    reason : str
        Why it was refused.
    consumer : Consumer or None
        To feed with what the host that `copy` was told sends, while COPYING.
    """

    def __init__(self, store: Store, hosts: tuple[str, ...], random: int, now_ns: int) -> None:
        self.store = store
        self.epoch = epoch_after(max(store.promised, store.epoch), random, promoted=True)
        self.state = PromotionState.ASKING
        self.answers: dict[str, Fenced] = {}
        self.reason = ""
        self.source = ""
        self._copied = ""  # the host at the other end of `consumer`
        self.consumer: Consumer | None = None
        self._waiting = set(hosts)
        self._until_ns = now_ns + ANSWER_NS
        # This host follows nobody any more.
        store.fence(self.epoch)
        self._work(now_ns)

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Hosts that did not answer."""
        return tuple(sorted(self._waiting))

    def answered(self, host: str, answer: Fenced, now_ns: int) -> None:
        """Take what a host said that was sent FENCE with this epoch, on a link of its own."""
        self.answers[host] = answer
        self._waiting.discard(host)
        if answer.promised > self.epoch:
            self._refuse(
                f"{host} has promised a later epoch, {answer.promised:x}: another host may be "
                "writing"
            )
        self._work(now_ns)

    def work(self, now_ns: int, unix_ns: int) -> None:
        """Let time pass."""
        if self.consumer is not None:
            self.consumer.work(now_ns, unix_ns)
        self._work(now_ns)

    def _work(self, now_ns: int) -> None:
        if self.store.promised > self.epoch:
            self._refuse("another host is being promoted")
        if self.state is PromotionState.ASKING and (not self._waiting or now_ns >= self._until_ns):
            self.state = PromotionState.COPYING
        if self.state is not PromotionState.COPYING:
            return
        self._correct()
        furthest = max(self.answers, key=self._how_far, default="")
        store = self.store
        own = any(store.identity), store.epoch, store.end
        if not furthest or self._how_far(furthest) <= own:
            self.state = PromotionState.READY
            self.consumer = None
            return
        self.source = furthest
        if self.consumer is None:
            return
        if self._copied != furthest:
            self.consumer.close(f"{furthest} has more")
        if self.consumer.closed:
            refused = self.consumer.refused
            if refused is not None and self._copied == furthest:
                # A link from before that is not known to be over: it is, soon, or somebody lives.
                if (
                    refused.reason is RefuseReason.NAME_IN_USE
                    and now_ns < self._until_ns + ANSWER_NS
                ):
                    self.consumer = None
                    return
                self._refuse(
                    f"{furthest} has more records, and refuses to give them: {refused.reason.name}"
                )
            self.consumer = None

    def copy(self, host: str, nonce: int, now_ns: int) -> Consumer:
        """Return the end of a new link to a host; to `source`, whenever there is none."""
        self._copied = host
        self.consumer = Consumer(self.store, nonce, now_ns, drain=True)
        return self.consumer

    def _correct(self) -> None:
        # A source that lost its power since it answered may have less than it said.
        welcome = None if self.consumer is None else self.consumer.welcome
        if welcome is None:
            return
        has = True, max((epoch for epoch, _ in welcome.lineage), default=0), welcome.end
        if has < self._how_far(self._copied):
            answer = self.answers[self._copied]
            self.answers[self._copied] = replace(answer, epoch=has[1], end=has[2])

    def _how_far(self, host: str) -> tuple[bool, int, int]:
        # A store without a record is further than none.
        answer = self.answers[host]
        return any(answer.identity), answer.epoch, answer.end

    def _refuse(self, reason: str) -> None:
        self.state = PromotionState.REFUSED
        self.reason = reason
        self.consumer = None

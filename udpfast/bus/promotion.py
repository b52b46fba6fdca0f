"""How a host becomes the writer of a store: ask all hosts, fence them, and copy what they have.

First, every other host is asked for its state; nobody promises anything yet. If one has more than
this host, a link to it shows whether it can be copied from. If this host cannot take over, the
promotion is refused at this point, and the present writer continues.

Then every other host promises to take nothing of lower epochs; the old writer, if it can be
reached, stops for good at that moment. Hosts that have promised do not change any more, so this
host copies from the one that has most, to its end. Only then the new epoch begins. Hosts that could
not be reached are named in the result: records that only they have are lost to the new epoch.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from msgspec.structs import replace

from udpfast.bus.hello import Answer, RefuseReason
from udpfast.bus.link_receiver import LinkReceiver
from udpfast.bus.log import Store
from udpfast.bus.wire import epoch_after

__all__ = ["Promotion", "PromotionState"]

#: A host that has not answered for this long cannot be reached.
ANSWER_NS = 2_000_000_000
#: A host that did not answer the first question gets this long for the second.
LATE_NS = 500_000_000
#: Refusals that may pass: the previous link was not missed yet, or the copy has yet to catch up.
PASSING = RefuseReason.NAME_IN_USE, RefuseReason.BEHIND


class PromotionState(enum.Enum):
    """The phase of a promotion."""

    ASKING = "asking"
    COMPARING = "comparing"
    FENCING = "fencing"
    COPYING = "copying"
    READY = "ready"
    REFUSED = "refused"


_LINKED = PromotionState.COMPARING, PromotionState.COPYING


class Promotion:
    """Make this host the writer of a store. The caller owns the links; one per host is enough.

    Parameters
    ----------
    store : Store
    hosts : sequence of str
        All other hosts that have a copy of the store.
    random : int
        64 random bits, of which the epoch takes 24.
    now_ns : int
        Monotonic time.

    Attributes
    ----------
    epoch : int
        The new epoch; 0: nobody has been fenced yet.
    state : PromotionState
        READY: `Sequencer(store, promotion.epoch, ...)` may begin.
    asks : bool
        The caller must ask all hosts (again), and set this to False.
    answers : dict
        Answer of each host.
    reason : str
        Why the promotion was refused.
    silent : bool
        It was refused after others had been fenced, so that nobody writes now.
    source : str
        A host that has more than this one; empty: there is none.
    receiver : LinkReceiver or None
        The end of the link to the host that was passed to `copy`, while `links`.
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
        self._put_off = ""  # why `source` does not serve this host at present
        self._copied = ""  # the host at the other end of `receiver`
        self.receiver: LinkReceiver | None = None
        self._random = random
        self._hosts = hosts
        self._waiting = set(hosts)
        self._heard: set[str] = set()  # hosts that answered the first question
        self._until_ns = now_ns + ANSWER_NS
        self._late_ns = self._reached_ns = 0
        self._work(now_ns)

    @property
    def unreachable(self) -> tuple[str, ...]:
        """Hosts that did not answer."""
        return tuple(sorted(self._waiting))

    @property
    def links(self) -> bool:
        """Whether the caller must link to `source`."""
        return self.state in _LINKED and bool(self.source)

    def answered(self, host: str, answer: Answer, now_ns: int) -> None:
        """Take the answer of a host to an ASK with the epoch that this host has promised.

        The promised epoch is the new one, once that is chosen.
        """
        if self.state not in (PromotionState.ASKING, PromotionState.FENCING):
            return
        if answer.promised < self.epoch:
            return  # it was asked before the epoch was chosen
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
        # Find out whether this host can take over, before anybody promises anything.
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
        # From now on this host follows nobody.
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
        # Copy what other hosts have more than this one, in epochs that have ended.
        self._correct()
        if not self._is_behind(now_ns) and self.state is PromotionState.COPYING:
            self._end_copy("copied")
            self.state = PromotionState.READY

    def _is_behind(self, now_ns: int) -> bool:
        # Return whether another host has more, and set `source` to it. Refuse if it cannot be
        # copied.
        store, receiver = self.store, self.receiver
        furthest = max(self.answers, key=self._how_far, default="")
        # An epoch in which nothing was written does not count.
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
            # It has answered, but can no longer be reached, or does not serve this host.
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
        """Return the receiving end for a new link to a host; call it when `source` has no link."""
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
        # A store without a record is further than no store.
        answer = self.answers[host]
        return any(answer.identity), answer.epoch, answer.end

    def furthest(self, own: str) -> str:
        """Return the host known to have most; `own` if no other host has more."""
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
        # Nobody writes now, unless a later epoch is known: then another host does or is about to.
        known = (answer.promised for answer in self.answers.values())
        self.silent = 0 < self.epoch == max(self.store.promised, *known, 0)
        self._end_copy("refused")

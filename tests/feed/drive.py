"""Drive a `FeedPipeline` in tests, and check NL0 and NL1 of everything that it did."""

import struct

import numpy as np

from udpfast.core.counter import VERDICTS
from udpfast.core.layout import CONTROL_DTYPES, Kind
from udpfast.feed.pipeline import FeedMessage, FeedPipeline

SESSION_ID = 0x1234
VERDICT_NAMES = tuple(info.name for info in VERDICTS)


def datagram(
    seqno: int,
    payload: bytes | None = None,
    *,
    session_id: int = SESSION_ID,
    fragment: int = 0,
    fragment_max: int = 0,
    control: int = 2,
    object_type: int = 3,
    object_id: int = 7,
    last_seqno: int | None = None,
) -> bytes:
    """One datagram, little-endian; its payload tells seqno, session and fragment apart."""
    seqno &= 0xFFFFFFFF
    if payload is None:
        payload = struct.pack("<IHH", seqno, session_id, fragment) * 2
        if fragment < fragment_max:
            payload = (payload * 32)[:512]
    last = (seqno - 1) & 0xFFFFFFFF if last_seqno is None else last_seqno
    return (
        struct.pack(
            "<BBBBHHII",
            control,
            fragment,
            fragment_max,
            object_type,
            object_id,
            session_id,
            seqno,
            last,
        )
        + payload
    )


def fragments(seqno: int, count: int, final_size: int = 77, **fields: int) -> list[bytes]:
    """All datagrams of one message; its bytes are `message_bytes` of the same arguments."""
    whole = message_bytes(seqno, count, final_size)
    return [
        datagram(
            seqno, whole[512 * i : 512 * (i + 1)], fragment=i, fragment_max=count - 1, **fields
        )
        for i in range(count)
    ]


def message_bytes(seqno: int, count: int, final_size: int = 77) -> bytes:
    """The payload that `fragments` cuts."""
    size = 512 * (count - 1) + final_size
    words = np.empty((size // 8 + 1, 2), "<u4")
    words[:, 0], words[:, 1] = seqno & 0xFFFFFFFF, np.arange(len(words))
    return words.tobytes()[:size]


class Driver:
    """A pipeline, everything that it was given and everything that it said."""

    def __init__(self, **settings: object) -> None:
        settings.setdefault("lines_incremental", 2)
        self.pipeline = FeedPipeline(**settings)  # type: ignore[arg-type]
        self.accepted = 0
        self.verdicts: list[str] = []
        self.out: list[FeedMessage] = []
        self.now_ns = 0

    def send(self, data: bytes, line: int = 0, channel: int = 0, at_ns: int | None = None) -> str:
        """Bring one datagram and take what it causes; time goes on by 1 us unless told."""
        self.now_ns = self.now_ns + 1000 if at_ns is None else at_ns
        verdict = self.pipeline.accept(channel, line, data, self.now_ns, self.now_ns)
        self.accepted += 1
        self.verdicts.append(VERDICT_NAMES[verdict])
        self.out += self.pipeline.take()
        return self.verdicts[-1]

    def expire(self, at_ns: int) -> None:
        """Let time pass."""
        self.now_ns = at_ns
        self.pipeline.expire(at_ns)
        self.out += self.pipeline.take()

    def finish(self) -> None:
        """End the input, then check the invariants."""
        self.pipeline.finish(self.now_ns)
        self.out += self.pipeline.take()
        assert self.pipeline.pending == (0, 0)
        self.check()

    def messages(self, channel: int = 0) -> list[FeedMessage]:
        """What was delivered of one channel."""
        return [m for m in self.out if m.kind is Kind.MESSAGE and m.channel == channel]

    def seqnos(self, channel: int = 0) -> list[int]:
        """Delivered seqnos of one channel."""
        return [m.seqno for m in self.messages(channel)]

    def gaps(self, channel: int = 0) -> list[tuple[int, int]]:
        """Gaps of one channel as (first, last)."""
        return [
            (int(g["first"]), int(g["last"]))
            for g in (read(m) for m in self.out if m.kind is Kind.GAP and m.channel == channel)
        ]

    def sessions(self) -> list[tuple[int, int, int, int]]:
        """Sessions begun as (old, new, reason, discarded)."""
        return [
            (int(s["old_id"]), int(s["new_id"]), int(s["reason"]), int(s["discarded"]))
            for s in (read(m) for m in self.out if m.kind is Kind.SESSION)
        ]

    def story(self, channel: int = 0) -> list[str]:
        """What came out of one channel, in words."""
        words = []
        for m in self.out:
            if m.channel != channel and m.kind is not Kind.SESSION:
                continue
            if m.kind is Kind.MESSAGE:
                words.append(str(m.seqno))
            elif m.kind is Kind.GAP:
                gap = read(m)
                words.append(f"gap {gap['first']}-{gap['last']}")
            elif m.kind is Kind.SESSION:
                words.append(f"session {m.session_id:#x}")
        return words

    def line(self, line: int, channel: int = 0) -> dict[str, int]:
        """Counters of one line."""
        return self.pipeline.counters()[f"{('incremental', 'snapshot')[channel]}.{line}"]

    def channel(self, channel: int = 0) -> dict[str, int]:
        """Counters of one channel."""
        return self.pipeline.counters()[("incremental", "snapshot")[channel]]

    def check(self) -> None:
        """NL0: verdicts add up to datagrams. NL1: messages and gaps partition each session."""
        counters = self.pipeline.counters()
        verdicts = sum(
            sum(scope[name] for name in VERDICT_NAMES)
            for label, scope in counters.items()
            if "." in label
        )
        assert verdicts == self.accepted, "NL0: a datagram without a verdict, or with two"
        for channel, label in enumerate(("incremental", "snapshot")):
            self._check_sequence(channel)
            delivered = self.messages(channel)
            gaps = [read(m) for m in self.out if m.kind is Kind.GAP and m.channel == channel]
            scope = counters[label]
            assert scope["messages"] == len(delivered)
            assert scope["gaps"] == len(gaps)
            assert scope["lost"] == sum(int(g["count"]) for g in gaps)
            assert scope["heartbeats"] == sum(not m.payload for m in delivered)
            assert scope["fragmented"] == sum(m.fragments > 1 for m in delivered)
            assert scope["incomplete"] + scope["disregarded"] <= scope["lost"]

    def _check_sequence(self, channel: int) -> None:
        expected: int | None = None
        session: int | None = None
        for m in self.out:
            if m.kind is Kind.SESSION:
                session, expected = m.session_id, None
            elif m.channel == channel and m.kind is Kind.MESSAGE:
                assert m.session_id == session, "a message of a session that was not announced"
                assert expected in (None, m.seqno), f"NL1: {m.seqno} follows {expected}"
                expected = (m.seqno + 1) & 0xFFFFFFFF
            elif m.channel == channel and m.kind is Kind.GAP:
                gap = read(m)
                first, last = gap["first"] & 0xFFFFFFFF, gap["last"] & 0xFFFFFFFF
                count = gap["count"]
                assert expected in (None, first), f"NL1: gap from {first} follows {expected}"
                assert count == ((last - first) & 0xFFFFFFFF) + 1
                assert int(gap["waited_ns"]) >= 0
                expected = (last + 1) & 0xFFFFFFFF


def read(message: FeedMessage) -> dict[str, int]:
    """The payload of what the feed says itself, by field name."""
    dtype = CONTROL_DTYPES[message.kind]
    values = np.frombuffer(message.payload, dtype)[0]
    found = {name: int(values[name]) for name in dtype.names or ()}
    return found | {name: found[name] & 0xFFFFFFFF for name in ("first", "last") if name in found}

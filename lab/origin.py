"""A publisher whose every state is known: what a follower's objects must equal (the oracle).

The state of an object is a number: each update folds its payload into it, so that an update
which is missing, doubled, out of order or of another object changes it for good. A snapshot
carries the state itself.
"""

import bisect
import random
import struct
import zlib

from .frames import datagrams, heartbeat

__all__ = ["Key", "Origin", "fold", "snapshot_state"]

Key = tuple[int, int]

_STATE = struct.Struct("<IQ")
_WRAP = 1 << 32


def fold(state: int, payload: bytes) -> int:
    """Return an object's state after an update."""
    return zlib.crc32(payload, state)


def snapshot_state(payload: bytes) -> int:
    """Return the state that a snapshot carries."""
    return int(_STATE.unpack_from(payload)[0])


class Origin:
    """One publisher session, loss-free: gives datagrams, remembers every state.

    Parameters
    ----------
    session_id : int
        As on the wire.
    objects : int
        Objects (3, 0) .. (3, objects - 1).
    seed : int
        Decides the payloads.
    first_seqno, first_snapshot_seqno : int
        Where the two numberings begin; near 2^32 they wrap.
    payload_max : int
        Largest payload; beyond 512 messages are fragmented.
    """

    def __init__(
        self,
        session_id: int = 1,
        *,
        objects: int = 100,
        seed: int = 0,
        first_seqno: int = 1,
        first_snapshot_seqno: int = 1,
        payload_max: int = 300,
    ) -> None:
        self.session_id = session_id
        self.first_seqno = first_seqno % _WRAP
        self.keys: list[Key] = [(3, number) for number in range(objects)]
        self.rng = random.Random(seed)
        self.next_seqno = first_seqno % _WRAP
        self.next_snapshot_seqno = first_snapshot_seqno % _WRAP
        self.payload_max = payload_max
        self.state: dict[Key, int] = {}
        self.last_seqno: dict[Key, int] = {}
        #: The state of an object as of each of its updates, by seqno.
        self.history: dict[tuple[Key, int], int] = {}
        #: When each object was updated: ordinals of incremental messages, from 0.
        self.updates: dict[Key, list[int]] = {}
        self.incremental_messages = 0
        self.snapshot_messages = 0
        self._filler = self.rng.randbytes(131072)

    def update(self, key: Key, *, snapshot: bool = False, size: int | None = None) -> list[bytes]:
        """Publish a change of an object (or, with `snapshot`, its state) incrementally."""
        seqno = self._take_seqno()
        payload = self._payload(key, size)
        self.state[key] = fold(self.state.get(key, 0), payload)
        if snapshot:
            payload = self._snapshot_payload(key, size)
        result = datagrams(
            payload,
            session_id=self.session_id,
            seqno=seqno,
            last_seqno=self.last_seqno.get(key, 0),
            object_type=key[0],
            object_id=key[1],
            snapshot=snapshot,
        )
        self.last_seqno[key] = seqno
        self.history[key, seqno] = self.state[key]
        self.updates.setdefault(key, []).append(self.incremental_messages - 1)
        return result

    def last_update_before(self, key: Key, seqno: int) -> int | None:
        """Return the seqno of an object's last update before another seqno, or None."""
        updates = self.updates.get(key, [])
        place = bisect.bisect_left(updates, (seqno - self.first_seqno) % _WRAP)
        return (self.first_seqno + updates[place - 1]) % _WRAP if place else None

    def snapshot(self, key: Key, *, size: int | None = None) -> list[bytes]:
        """Publish an object's state on the snapshot channel; nothing if it has none yet."""
        if key not in self.state:
            return []
        seqno = self.next_snapshot_seqno
        self.next_snapshot_seqno = (seqno + 1) % _WRAP
        self.snapshot_messages += 1
        return datagrams(
            self._snapshot_payload(key, size),
            session_id=self.session_id,
            seqno=seqno,
            last_seqno=self.last_seqno[key],
            object_type=key[0],
            object_id=key[1],
            snapshot=True,
        )

    def heartbeat(self) -> bytes:
        """Publish a heartbeat on the incremental channel."""
        return heartbeat(session_id=self.session_id, seqno=self._take_seqno())

    def _take_seqno(self) -> int:
        seqno = self.next_seqno
        self.next_seqno = (seqno + 1) % _WRAP
        self.incremental_messages += 1
        return seqno

    def _payload(self, key: Key, size: int | None) -> bytes:
        if size is None:
            size = self.rng.randint(8, self.payload_max)
        body = struct.pack("<HIH", key[1], self.next_seqno, size & 0xFFFF)
        return self._filled(body, max(1, size))

    def _snapshot_payload(self, key: Key, size: int | None) -> bytes:
        if size is None:
            size = self.rng.randint(_STATE.size, max(_STATE.size, self.payload_max))
        body = _STATE.pack(self.state[key], self.last_seqno.get(key, 0))
        return self._filled(body, max(_STATE.size, size))

    def _filled(self, body: bytes, size: int) -> bytes:
        return body[:size] + self._filler[: max(0, size - len(body))]

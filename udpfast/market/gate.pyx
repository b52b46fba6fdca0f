"""The gate for Python: what lies between windows and subscriber, driven message by message."""

from typing import NamedTuple

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from udpfast.core.counter cimport FEED_COUNTER_COUNT
from udpfast.core.keyed cimport keyed_word
from udpfast.core.layout cimport (
    CHANNEL_INCREMENTAL, Connection, Gap, KIND_CONNECTION, KIND_GAP, KIND_MESSAGE, KIND_SESSION,
    MESSAGE_SIZE_MAX, Message, Session)
from udpfast.market.gate_state cimport (
    Gate, GateSettings, Object, gate_find, gate_init, gate_memory_size, gate_status)

from udpfast.core.counter import FEED_COUNTERS
from udpfast.core.layout import ObjectStatus

__all__ = ["ObjectGate", "ObjectOutput", "ObjectView", "seqno_at_or_before"]

if sizeof(Object) != 64:
    raise ImportError(f"struct Object has {sizeof(Object)} bytes, not one cache line of 64")


class ObjectOutput(NamedTuple):
    """One output of `ObjectGate.admit`; `payload` is a copy."""

    kind: int
    flags: int
    object_type: int
    object_id: int
    seqno: int
    last_seqno: int
    channel: int
    tag: int
    payload: bytes


class ObjectView(NamedTuple):
    """What is known of one object; seqnos are those of the wire."""

    status: ObjectStatus
    applied_seqno: int | None
    first_collected: int | None
    collected: int
    tag: int


def seqno_at_or_before(uint32_t a, uint32_t b) -> bool:
    """Return whether seqno `a` is `b` or up to 2^31 - 1 before it (RFC 1982)."""
    return b - a < <uint32_t>0x80000000u


@cython.final
cdef class ObjectGate:
    """The object table of one feed (docs/protocol.md), fed with messages in seqno order.

    Parameters
    ----------
    objects_max : int
        Gate per session; messages of further ones are counted and dropped.
    collect_messages_max : int
        Updates kept per object while it waits for a snapshot.
    collect_bytes : int
        Memory for kept updates, of all objects together.
    snapshots : bool
        Whether the feed has lines that bring snapshots.
    """

    cdef Gate objects
    cdef int64_t counter_slots[FEED_COUNTER_COUNT]
    cdef void* memory

    def __cinit__(
            self, *, uint32_t objects_max=65536, uint32_t collect_messages_max=4096,
            uint64_t collect_bytes=1 << 26, bint snapshots=True):
        cdef GateSettings settings
        if objects_max == 0 or objects_max > 1 << 24:
            raise ValueError(f"objects_max must be 1 to {1 << 24}, was {objects_max}")
        if collect_messages_max == 0:
            raise ValueError("collect_messages_max must be positive, was 0")
        settings.objects_max = objects_max
        settings.collect_messages_max = collect_messages_max
        settings.collect_bytes = collect_bytes
        settings.snapshots = snapshots
        memset(self.counter_slots, 0, sizeof(self.counter_slots))
        self.memory = calloc(1, gate_memory_size(&settings) + 64)
        if self.memory == NULL:
            raise MemoryError(gate_memory_size(&settings))
        gate_init(
            &self.objects, <void*>((<size_t>self.memory + 63) & ~<size_t>63), &settings,
            self.counter_slots)

    def __dealloc__(self):
        free(self.memory)

    def admit(
            self, *, int kind=KIND_MESSAGE, int channel=CHANNEL_INCREMENTAL, int flags=0,
            int object_type=0, int object_id=0, uint32_t seqno=0, uint32_t last_seqno=0,
            int session_id=0, bytes payload=b"x", bint gated=True,
            bint refused=False) -> list[ObjectOutput]:
        """Admit one message and return what may be published, in order.

        Parameters
        ----------
        kind : int
            `Kind.MESSAGE`, or a control message with its own `payload` (`Kind.GAP`, ...).
        gated : bool
            Whether objects of this type have snapshots.
        refused : bool
            None of the messages that come out can be used: their payloads are damaged.
        """
        cdef Message message
        cdef Message* output
        memset(&message, 0, sizeof(Message))
        message.kind = kind
        message.channel = channel
        message.flags = flags
        message.payload = payload
        message.size = <uint32_t>len(payload)
        message.fragments = 1
        message.object = (<uint32_t>object_type << 16) | <uint32_t>object_id
        message.session_id = <uint64_t>session_id
        message.number = seqno
        message.detail = last_seqno
        if kind == KIND_GAP and len(payload) != sizeof(Gap):
            raise ValueError(f"a gap has {sizeof(Gap)} bytes, found {len(payload)}")
        if kind == KIND_SESSION and len(payload) != sizeof(Session):
            raise ValueError(f"a session has {sizeof(Session)} bytes, found {len(payload)}")
        if kind == KIND_CONNECTION and len(payload) != sizeof(Connection):
            raise ValueError(f"a connection has {sizeof(Connection)} bytes, found {len(payload)}")
        if len(payload) > MESSAGE_SIZE_MAX:
            raise ValueError(f"a message has up to {MESSAGE_SIZE_MAX} bytes, found {len(payload)}")
        outputs = []
        gate_admit(&self.objects, &message, gated)
        output = gate_take(&self.objects)
        while output != NULL:
            outputs.append(ObjectOutput(
                output.kind, output.flags, output.object >> 16, output.object & 0xFFFF,
                <uint32_t>output.number, <uint32_t>output.detail, output.channel, output.tag,
                (<const char*>output.payload)[:output.size]))
            if refused and output.kind == KIND_MESSAGE:
                outputs.pop()
                gate_reject(&self.objects, output)
            output = gate_take(&self.objects)
        return outputs

    def tag(self, int object_type, int object_id, uint64_t tag) -> None:
        """Set the tag that outputs of an object carry; an unknown object is left alone."""
        gate_tag(
            &self.objects, (<uint32_t>object_type << 16) | <uint32_t>object_id, tag)

    def state(self, int object_type, int object_id) -> ObjectView | None:
        """Return what is known of an object, or None."""
        cdef Object* object = gate_find(
            &self.objects, (<uint32_t>object_type << 16) | <uint32_t>object_id, False)
        if object == NULL:
            return None
        return ObjectView(
            ObjectStatus(gate_status(&self.objects, object)),
            <uint32_t>object.applied if object.applied else None,
            <uint32_t>object.needs_from if object.needs_from else None,
            object.collected, object.tag)

    def probes(self, int object_type, int object_id) -> int:
        """Return how many places of the table were looked at to find an object."""
        cdef uint32_t key = (<uint32_t>object_type << 16) | <uint32_t>object_id
        cdef uint32_t place = <uint32_t>keyed_word(&self.objects.key, key)
        cdef Object* object = gate_find(&self.objects, key, False)
        cdef uint32_t mask = self.objects.slots_mask, probes = 1
        if object == NULL:
            raise KeyError(f"no object {object_type}/{object_id}")
        while &self.objects.objects[self.objects.slots[place & mask].index] != object:
            place += 1
            probes += 1
        return probes

    @property
    def saw_session_from_first(self) -> bool:
        """Whether no seqno of the session was missed, so that last_seqno 0 means "none yet"."""
        return self.objects.saw_session_from_first

    @saw_session_from_first.setter
    def saw_session_from_first(self, bint value) -> None:
        self.objects.saw_session_from_first = value

    def counters(self) -> dict[str, int]:
        """Return the feed's counters by name."""
        return {info.name: self.counter_slots[index] for index, info in enumerate(FEED_COUNTERS)}

"""An app's outbox: where its messages wait until they are seen in the stream.

Nothing here waits for a reply: `bus.outbox_sender` sends the messages to the sequencer.
"""

import enum
from operator import index

from libc.stdint cimport uint8_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset
from posix.unistd cimport getpid

from udpfast.bus.wire cimport NAME_SIZE, SENT_SIZE_MAX

from udpfast.bus.wire import name_bytes, name_text
from udpfast.errors import (
    OutboxFullError, OutboxLostError, SupersededError, WriterExistsError)

__all__ = ["OUTBOX_HEADER", "Outbox", "OutboxState", "outbox_facts"]

#: Size of the header of an outbox, which describes everything but its messages.
OUTBOX_HEADER: int = sizeof(OutboxHeader)

if sizeof(OutboxHeader) != 344 or sizeof(OutboxEntry) != 40:
    raise ImportError(f"OutboxHeader has {sizeof(OutboxHeader)} bytes, OutboxEntry "
                      f"{sizeof(OutboxEntry)}")


class OutboxState(enum.IntEnum):
    """Whether the messages of an outbox will get into the stream."""

    NEW = OUTBOX_NEW
    REGISTERED = OUTBOX_REGISTERED
    NAME_IN_USE = OUTBOX_NAME_IN_USE
    SUPERSEDED = OUTBOX_SUPERSEDED
    LOST = OUTBOX_LOST


cdef class Outbox:
    """An app's messages on their way to the stream. Only one process writes it.

    Parameters
    ----------
    memory : writable buffer
        An outbox, of the size that `size_bytes` returns.

    Attributes
    ----------
    bell : int
        Descriptor of the FIFO that wakes a sleeping daemon; -1: none.
    closed : bool
        Nothing is accepted any more, because the outbox's lock was released.
    pid : int
        The process that opened it.
    """

    def __init__(self, uint8_t[::1] memory):
        self._memory = memory
        self.bell = -1
        self.pid = getpid()
        self.header = <OutboxHeader*>&memory[0]
        if memory.shape[0] < OUTBOX_PAGE or self.header.slots == 0 or (
                <uint64_t>memory.shape[0] != Outbox.size_bytes(
                    self.header.slots, self.header.capacity)):
            raise ValueError(f"expected an outbox, found {memory.shape[0]} bytes of something else")
        self.entries = <OutboxEntry*>(&memory[0] + OUTBOX_PAGE)
        self.payloads = <uint8_t*>(self.entries + self.header.slots)

    @staticmethod
    def size_bytes(slots: int, capacity: int) -> int:
        """Return the size in bytes of an outbox for `slots` messages of `capacity` bytes in all."""
        return OUTBOX_PAGE + sizeof(OutboxEntry) * slots + capacity

    @staticmethod
    def create(
            uint8_t[::1] memory, name: str, host: str, nonce: int, slots: int,
            capacity: int) -> Outbox:
        """Make an outbox in memory that is all zeros.

        Parameters
        ----------
        memory : writable buffer
            As large as `size_bytes` returns.
        name, host : str
            Name of the sender, which is unique in the store, and its host.
        nonce : int
            64 random bits, not 0.
        slots, capacity : int
            Most messages that may wait (a power of two), and most bytes of them.
        """
        cdef OutboxHeader* header = <OutboxHeader*>&memory[0]
        cdef bytes text = name_bytes(name), where = name_bytes(host)
        if slots & (slots - 1) or slots < 2:
            raise ValueError(f"slots must be a power of two, was {slots}")
        if capacity < 2 * SENT_SIZE_MAX:
            raise ValueError(f"capacity must be at least {2 * SENT_SIZE_MAX}, was {capacity}")
        memset(header, 0, OUTBOX_PAGE)
        memcpy(header.name, <const char*>text, NAME_SIZE)
        memcpy(header.host, <const char*>where, NAME_SIZE)
        header.slots = slots
        header.capacity = capacity
        header.nonce = nonce
        return Outbox(memory)

    def send(self, payload: bytes | bytearray | memoryview, type: int = 0) -> int:
        """Accept a message; return its number.

        Raises
        ------
        TypeError, ValueError
            `type` is not an integer from 0 to 65,535; the message does not fit one datagram; or the
            outbox is closed.
        WriterExistsError
            This is a forked child of the process that opened it.
        OutboxFullError
            Too many messages, or bytes, are waiting; this message was not accepted.
        SupersededError
            Another process sends under this name.
        OutboxLostError
            Messages that were let go are no longer in the stream. Begin a new outbox.
        """
        cdef OutboxHeader* header = self.header
        cdef const uint8_t[::1] content = memoryview(payload).cast("B")
        cdef uint64_t size = content.shape[0]
        cdef int64_t number
        type = index(type)
        if not 0 <= type <= 0xFFFF:
            raise ValueError(f"type must be 0 to 65535, was {type}")
        number = outbox_send(self, &content[0] if size else NULL, size, <uint16_t>type)
        if number > 0:
            return number
        if number == UNSENT_CLOSED:
            if getpid() != self.pid:
                raise WriterExistsError(
                    f"outbox of {self.name}: only process {self.pid}, which opened it, can send, "
                    f"and this is its forked child {getpid()}: open an app with another name here")
            raise ValueError(f"outbox of {self.name} is closed")
        if number == UNSENT_TOO_LARGE:
            raise ValueError(f"a message must have at most {SENT_SIZE_MAX} bytes, has {size}")
        if number == UNSENT_SUPERSEDED:
            raise SupersededError(
                f"another process has taken over the name {name_text(header.name[:NAME_SIZE])}: "
                f"{header.accepted - header.seen} accepted messages are not in the stream; "
                "App(..., anew=True) begins again")
        if number == UNSENT_LOST:
            raise OutboxLostError(
                f"{header.freed} messages of {name_text(header.name[:NAME_SIZE])} were in the "
                f"stream, but now only {header.seen} are: the hosts that had the others lost "
                "them; App(..., anew=True) begins again")
        raise OutboxFullError(
            f"the outbox is full: {header.accepted - header.freed} messages, "
            f"{header.filled - header.emptied} bytes, are on their way (at most {header.slots} "
            f"and {header.capacity})")

    @property
    def name(self) -> str:
        """Name of the sender."""
        return name_text(self.header.name[:NAME_SIZE])

    @property
    def state(self) -> OutboxState:
        """Whether its messages will get into the stream."""
        return OutboxState(self.header.state)

    @property
    def sender(self) -> tuple[int, int]:
        """Number and incarnation that the sequencer assigned; zeros: none yet."""
        return self.header.sender, self.header.incarnation

    def counts(self) -> dict[str, int]:
        """Return how many messages were accepted, seen, freed and resent, and datagrams sent."""
        cdef OutboxHeader* header = self.header
        return {"accepted": header.accepted, "seen": header.seen, "freed": header.freed,
                "datagrams": header.sent, "resent": header.resent}


def outbox_facts(bytes header, size_bytes: int) -> dict[str, Any]:
    """Return the state of an outbox from its header, for tools that only read it.

    Parameters
    ----------
    header : bytes
        The first `OUTBOX_HEADER` bytes of the outbox.
    size_bytes : int
        Size of the whole file.

    Returns
    -------
    dict
        `sender`; `state` as in `OutboxState`; the counts of `Outbox.counts`; `waiting`: messages
        accepted and not let go; `slots`: most that may wait; `waiting_bytes` and
        `capacity_bytes`: the same in bytes.

    Raises
    ------
    ValueError
        The bytes are not the header of an outbox.
    """
    cdef OutboxHeader found
    if len(header) >= <int>sizeof(found):
        memcpy(&found, <const char*>header, sizeof(found))
    if len(header) < <int>sizeof(found) or not found.slots or (
            size_bytes != Outbox.size_bytes(found.slots, found.capacity)):
        raise ValueError(f"expected an outbox, found {size_bytes} bytes of something else")
    return {
        "sender": name_text(found.name[:NAME_SIZE]), "state": OutboxState(found.state).name.lower(),
        "accepted": found.accepted, "seen": found.seen, "freed": found.freed,
        "datagrams": found.sent, "resent": found.resent,
        # App and daemon count at the same time: either number may be newer.
        "waiting": max(<object>found.accepted - <object>found.freed, 0), "slots": found.slots,
        "waiting_bytes": max(<object>found.filled - <object>found.emptied, 0),
        "capacity_bytes": found.capacity,
    }

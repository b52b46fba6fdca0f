# Outbox: where an app's messages wait until they are seen in the stream. `bus.outbox_sender` sends
# them to the sequencer. The memory is shared by the app and the daemon of its host:
#
#   0                4096                             4096 + 40 * slots
#   +----------------+--------------------------------+------------------------------+
#   | OutboxHeader   | entry of number n: n % slots   | payloads, each behind the last|
#   +----------------+--------------------------------+------------------------------+
#
# The app writes the payload, then the entry, then `accepted` with release. A message counts as
# accepted once `accepted` includes its number, whichever process is killed when. The daemon writes
# everything else.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from libc.string cimport memcpy, memset

from udpfast.bus.wire cimport SENT_SIZE_MAX
from udpfast.core.atomics cimport fence_full, load_acquire, store_release

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void* content, size_t size)

cdef enum:
    OUTBOX_PAGE = 4096

cdef enum:  # OutboxState
    OUTBOX_NEW = 0               # not registered yet
    OUTBOX_REGISTERED = 1
    OUTBOX_NAME_IN_USE = 2       # a living process of another host has this name
    OUTBOX_SUPERSEDED = 3        # another outbox registered under this name since; this one is dead
    OUTBOX_LOST = 4              # messages that were safe are no longer in the stream

cdef enum:  # what `send` returns instead of a number
    UNSENT_FULL = -1             # too many messages or bytes are waiting
    UNSENT_TOO_LARGE = -2        # larger than SENT_SIZE_MAX: it does not fit one datagram
    UNSENT_SUPERSEDED = -3       # OUTBOX_SUPERSEDED: no further message will be delivered
    UNSENT_LOST = -4             # OUTBOX_LOST: likewise
    UNSENT_CLOSED = -5           # this process does not have the outbox, or has closed it

cdef struct OutboxHeader:  # 344 bytes
    char name[32]
    char host[32]
    uint64_t nonce               # identifies this outbox in the stream
    uint64_t slots               # a power of two
    uint64_t capacity            # bytes for payloads
    uint8_t pad_made[40]
    uint64_t accepted            # messages 1 to this one are accepted; written by the app
    uint64_t filled  # bytes of payload space ever used, including those skipped at the end
    uint8_t pad_app[112]
    uint64_t freed               # messages 1 to this one were let go; from here on the daemon's
    uint64_t emptied             # bytes of payload space ever freed
    uint64_t seen                # messages 1 to this one have been seen in the stream
    uint64_t watched             # position in the stream from which to look for messages
    uint64_t registered          # position of its SENDER record
    uint32_t sender
    uint32_t incarnation
    uint32_t state               # OutboxState
    uint32_t asleep              # 1: the daemon sleeps, and a sender must ring the bell
    uint64_t sent                # number of datagrams
    uint64_t resent              # number of messages sent again
    uint64_t watched_epoch       # epoch of the record before `watched`
    uint64_t freed_epoch         # epoch of the store's last record when `freed` last grew

cdef struct OutboxEntry:  # 40 bytes
    uint64_t offset              # of the payload, in bytes of payload space ever used
    uint32_t size
    uint16_t type
    uint16_t step                # how often it has been sent again
    uint64_t seen_end            # position behind its record in the stream; 0: not seen
    int64_t due_ns               # when to send it again, by the outbox sender's clock
    uint64_t emptied             # bytes of payload space ever used up to the payload's end

cdef class Outbox:
    cdef uint8_t[::1] _memory
    cdef public int bell         # descriptor of the FIFO that wakes the daemon; -1: none
    cdef public bint closed      # this process has no lock on it: another one may send
    cdef readonly int pid        # process that opened it
    cdef OutboxHeader* header
    cdef OutboxEntry* entries
    cdef uint8_t* payloads
    cdef inline OutboxEntry* entry(self, uint64_t number) noexcept nogil:
        return self.entries + (number & (self.header.slots - 1))


cdef inline int64_t outbox_send(
        Outbox outbox, const uint8_t* payload, uint64_t size, uint16_t type) noexcept nogil:
    # Accept a message; return its number, from 1, or UNSENT_*. One thread at a time may call it.
    cdef OutboxHeader* header = outbox.header
    cdef uint64_t number = header.accepted + 1
    cdef uint64_t offset = header.filled
    cdef OutboxEntry* entry
    if outbox.closed:
        return UNSENT_CLOSED
    if size > SENT_SIZE_MAX:
        return UNSENT_TOO_LARGE
    if header.state >= OUTBOX_SUPERSEDED:
        return UNSENT_LOST if header.state == OUTBOX_LOST else UNSENT_SUPERSEDED
    # A payload must be contiguous.
    if offset % header.capacity + size > header.capacity:
        offset += header.capacity - offset % header.capacity
    # Acquire: the daemon reads freed space no more; stored by OutboxSender._let_go.
    if (number - load_acquire(&header.freed) > header.slots
            or offset + size - load_acquire(&header.emptied) > header.capacity):
        return UNSENT_FULL
    if size:
        memcpy(outbox.payloads + offset % header.capacity, payload, size)
    entry = outbox.entry(number)
    memset(entry, 0, sizeof(OutboxEntry))
    entry.offset = offset
    entry.size = <uint32_t>size
    entry.type = type
    entry.emptied = header.filled = offset + size
    # Orders payload and entry before the number; read by OutboxSender.work.
    store_release(&header.accepted, number)
    if outbox.bell >= 0:
        fence_full()  # the daemon stores `asleep`, then looks a last time
        if header.asleep:
            write(outbox.bell, outbox.payloads, 1)  # any byte; a full FIFO wakes as well
    return <int64_t>number

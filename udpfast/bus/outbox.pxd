# Outbox: where an app's messages wait until they are seen in the stream. `bus.outbox_sender` brings
# them to the sequencer. The memory is the app's and the daemon's of one host:
#
#   0                4096                             4096 + 40 * slots
#   +----------------+--------------------------------+------------------------------+
#   | OutboxHeader   | entry of number n: n % slots   | payloads, each behind the last|
#   +----------------+--------------------------------+------------------------------+
#
# The app writes the payload, then the entry, then `accepted`, with release: a message is accepted
# when its number is counted there, whoever is killed when. Everything else is the daemon's.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from libc.string cimport memcpy, memset

from udpfast.bus.wire cimport SENT_SIZE_MAX
from udpfast.core.atomics cimport fence_full, load_acquire, store_release

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void* content, size_t size)

cdef enum:
    OUTBOX_PAGE = 4096

cdef enum:  # OutboxState
    OUTBOX_NEW = 0               # not registered
    OUTBOX_REGISTERED = 1
    OUTBOX_NAME_IN_USE = 2       # a living process of another host has this name
    OUTBOX_SUPERSEDED = 3        # another outbox of this name was registered since: this is over
    OUTBOX_LOST = 4              # messages that all standbys had are not in the stream any more

cdef enum:  # Unsent: what `send` returns in place of a number
    UNSENT_FULL = -1             # so many messages, or bytes, were not yet let go
    UNSENT_TOO_LARGE = -2        # it does not fit one datagram: SENT_SIZE_MAX bytes
    UNSENT_SUPERSEDED = -3       # OUTBOX_SUPERSEDED: nothing of this outbox is delivered any more
    UNSENT_LOST = -4             # OUTBOX_LOST: as above
    UNSENT_CLOSED = -5           # this process does not have the outbox, or not any more

cdef struct OutboxHeader:  # 344 bytes
    char name[32]
    char host[32]
    uint64_t nonce               # by which the stream says that it is this outbox
    uint64_t slots               # a power of two
    uint64_t capacity            # bytes for payloads
    uint8_t pad_made[40]
    uint64_t accepted            # messages 1 to this one were accepted; the app's
    uint64_t filled              # bytes of payloads ever taken, with what was skipped at the end
    uint8_t pad_app[112]
    uint64_t freed               # messages 1 to this one were let go; the daemon's, as all below
    uint64_t emptied             # bytes of payloads ever let go
    uint64_t seen                # messages 1 to this one were seen in the stream
    uint64_t watched             # position in the stream before which nothing is of interest
    uint64_t registered          # position of its SENDER record
    uint32_t sender
    uint32_t incarnation
    uint32_t state               # OutboxState
    uint32_t asleep              # 1: the daemon waits; who sends rings the bell
    uint64_t sent                # datagrams
    uint64_t resent              # messages that were sent again
    uint64_t watched_epoch       # of the record before `watched`
    uint64_t freed_epoch         # of the store's last record when `freed` grew last

cdef struct OutboxEntry:  # 40 bytes
    uint64_t offset              # of the payload, in all bytes ever taken
    uint32_t size
    uint16_t type
    uint16_t step                # how often it was sent again
    uint64_t seen_end            # position behind its record in the stream; 0: not seen
    int64_t due_ns               # when it is sent again, by the outbox sender's clock
    uint64_t emptied             # bytes ever taken up to its end

cdef class Outbox:
    cdef uint8_t[::1] _memory
    cdef public int bell         # descriptor of the FIFO by which the daemon is woken; -1: none
    cdef public bint closed      # another process may send: this one does not have its lock
    cdef readonly int pid        # that opened it
    cdef OutboxHeader* header
    cdef OutboxEntry* entries
    cdef uint8_t* payloads
    cdef inline OutboxEntry* entry(self, uint64_t number) noexcept nogil:
        return self.entries + (number & (self.header.slots - 1))


cdef inline int64_t outbox_send(
        Outbox outbox, const uint8_t* payload, uint64_t size, uint16_t type) noexcept nogil:
    # Accept a message; return its number, from 1, or UNSENT_*. One thread at a time.
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
    # A payload lies in one piece.
    if offset % header.capacity + size > header.capacity:
        offset += header.capacity - offset % header.capacity
    # Acquire: what was let go is not read any more; stored by OutboxSender.let_go.
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
    # Orders payload and entry before the number; read by the outbox sender.
    store_release(&header.accepted, number)
    if outbox.bell >= 0:
        fence_full()  # the daemon says that it sleeps before it looks for the last time
        if header.asleep:
            write(outbox.bell, outbox.payloads, 1)  # any byte; one that is full rings already
    return <int64_t>number

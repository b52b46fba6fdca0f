# Sequencer: the only writer of a store. It gives messages their place and their time.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.bus.log cimport Log, Store
from udpfast.bus.wire cimport SENDERS_MAX, EpochBegin, Registration, SendHeader
from udpfast.core.layout cimport Record, SenderEntry

cdef enum:
    AHEAD_MAX = 4096             # how far ahead of its sender's next number a message is held
    HELD_MAX = 8192              # most messages held of all senders together: 12 MiB
    SENDERS_EVERY = 64 << 20     # bytes of records between two SENDERS; a restart reads as much
    ALIVE_NS = 3_000_000_000     # a sender that was heard this long ago counts as alive
    STEP_NS = 1_000_000_000      # a larger difference is a step: counted, not followed back
    SLEW_PPM = 500

cdef enum:  # verdicts: each message, or datagram without messages, gets exactly one
    SEQUENCER_ACCEPTED = 0
    SEQUENCER_DUPLICATE = 1
    SEQUENCER_EARLY = 2          # too far ahead, or dropped for one that is needed sooner
    SEQUENCER_UNKNOWN = 3        # of another store, or of an unregistered sender
    SEQUENCER_FENCED = 4         # of an epoch or incarnation that has ended, or this writer has
    SEQUENCER_MALFORMED = 5
    SEQUENCER_UNAUTHENTIC = 6
    SEQUENCER_FULL = 7           # the log has no room at present
    SEQUENCER_VERDICTS = 8

cdef struct Steady:              # a clock close to UNIX time that never goes back
    int64_t unix_ns              # its time ...
    int64_t now_ns               # ... at this monotonic time
    uint64_t steps               # number of steps of the host's clock by more than STEP_NS
    bint away                    # the host's clock is behind by more than STEP_NS

cdef struct Sender:
    SenderEntry entry
    int64_t heard_ns             # monotonic
    uint32_t held                # number of messages held
    uint64_t top                 # highest number of these
    uint32_t* cells              # message n is held in cells[n % AHEAD_MAX]; 0: not held

cdef class Sequencer:
    cdef readonly Store store
    cdef Log log
    cdef Steady clock
    cdef Sender* senders         # [1 .. count]
    cdef readonly uint32_t count
    cdef uint8_t* _cells         # HELD_MAX + 1 of them; the first is unused
    cdef uint32_t _free          # head of the list of free cells; 0: none
    cdef uint32_t _fresh         # number of cells ever used
    cdef uint64_t _senders_due   # position from which on a SENDERS record is due
    cdef uint64_t _epoch
    cdef uint64_t _key
    cdef int64_t _began_ns
    cdef EpochBegin _begin       # payload of its epoch's RESTART
    cdef bint _begin_due         # RESTART is not written yet
    cdef dict _names             # name -> sender
    cdef uint64_t[8] _verdicts
    cdef readonly uint64_t received, held, refused_names
    cdef readonly bint full      # the log has no room; make_room gets some
    cdef int accept(self, const uint8_t* data, uint64_t size, int64_t now_ns, int64_t unix_ns,
                    int* told) noexcept nogil
    cdef void _take_messages(
        self, const SendHeader* header, int64_t now_ns, int64_t unix_ns) noexcept nogil
    cdef int _refusal(self, const SendHeader* header, int* told) noexcept nogil
    cdef int _message(self, Sender* sender, uint64_t number, const uint8_t* message, int64_t unix_ns
                      ) noexcept nogil
    cdef bint _append(self, Sender* sender, const uint8_t* message, int64_t unix_ns) noexcept nogil
    cdef int _hold(self, Sender* sender, uint64_t number, const uint8_t* message) noexcept nogil
    cdef void _release(self, Sender* sender, int64_t unix_ns) noexcept nogil
    cdef uint32_t _take_cell(self) noexcept nogil
    cdef uint32_t _give_up(self, Sender* sender, uint64_t number) noexcept nogil
    cdef void _give_cell(self, uint32_t cell) noexcept nogil
    cdef int _register(self, const Registration* registration, int64_t now_ns, int64_t unix_ns)
    cdef bytes _entries(self)
    cdef _read(self, const Record* record)
    cdef bint _write_begin(self, int64_t unix_ns)
    cdef bint _roll(self, int64_t unix_ns)
    cdef bint _write_senders(self, int64_t unix_ns)
    cdef void _drop_held(self, Sender* sender) noexcept nogil
    cdef bint _write(self, int kind, const uint8_t* payload, uint64_t size, int64_t unix_ns,
                     uint64_t number=*)


# Return the payload of the RESTART of an epoch that begins at the store's end.
cdef EpochBegin epoch_begin(Store store, uint64_t epoch, int64_t unix_ns)


cdef inline int64_t steady_time(Steady* clock, int64_t now_ns, int64_t unix_ns) noexcept nogil:
    # Return this clock's UNIX time: slewed towards the host's clock, never backwards.
    cdef int64_t elapsed = max(now_ns - clock.now_ns, 0)
    cdef int64_t most = elapsed * SLEW_PPM // 1_000_000
    cdef int64_t error
    clock.unix_ns += elapsed
    clock.now_ns = max(now_ns, clock.now_ns)
    error = unix_ns - clock.unix_ns
    if error > STEP_NS:
        clock.steps += 1
        clock.unix_ns = unix_ns
        clock.away = False
    elif error < -STEP_NS:
        clock.steps += not clock.away
        clock.away = True
        clock.unix_ns -= most
    else:
        clock.away = False
        clock.unix_ns += min(max(error, -most), most)
    return clock.unix_ns

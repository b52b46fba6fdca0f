# Sequencer: the one writer of a store. It gives messages their place and their time.

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from udpfast.bus.log cimport Log, Store
from udpfast.bus.wire cimport SENDERS_MAX, EpochBegin, Registration, SendHeader
from udpfast.core.layout cimport Record, SenderEntry

cdef enum:
    AHEAD_MAX = 4096             # numbers that are held until those before them come
    HELD_MAX = 8192              # messages that are held of all senders together: 12 MiB
    SENDERS_EVERY = 64 << 20     # bytes of records between two SENDERS: what a restart reads
    ALIVE_NS = 3_000_000_000     # a sender that was heard so long ago lives
    STEP_NS = 1_000_000_000      # the clock was set: not followed backwards, counted
    SLEW_PPM = 500

cdef enum:  # verdicts: each message, or datagram without one, gets exactly one
    SEQUENCER_ACCEPTED = 0
    SEQUENCER_DUPLICATE = 1
    SEQUENCER_EARLY = 2          # too far ahead, or given up for one that comes sooner
    SEQUENCER_UNKNOWN = 3        # of another store, or of a sender that is not registered
    SEQUENCER_FENCED = 4         # of an epoch or incarnation that is over, or to a writer that is
    SEQUENCER_MALFORMED = 5
    SEQUENCER_UNAUTHENTIC = 6
    SEQUENCER_FULL = 7           # the log takes no more, for now
    SEQUENCER_VERDICTS = 8

cdef struct Steady:              # a clock that is near UNIX time, and only goes forward
    int64_t unix_ns              # what it says ...
    int64_t now_ns               # ... at this monotonic time
    uint64_t steps               # of the host's clock, of more than STEP_NS
    bint away                    # the host's clock is that far behind

cdef struct Sender:
    SenderEntry entry
    int64_t heard_ns             # monotonic
    uint32_t held                # messages that wait for those before them
    uint64_t top                 # number of the last of these
    uint32_t* cells              # of number n: cells[n % AHEAD_MAX]; 0: none

cdef class Sequencer:
    cdef readonly Store store
    cdef Log log
    cdef Steady clock
    cdef Sender* senders         # [1 .. count]
    cdef readonly uint32_t count
    cdef uint8_t* _cells         # HELD_MAX + 1 of them; the first is none
    cdef uint32_t _free          # the first of those that were given back; 0: none
    cdef uint32_t _fresh         # cells that were ever taken
    cdef uint64_t _senders_due   # position from which on the next SENDERS is due
    cdef uint64_t _epoch
    cdef uint64_t _key
    cdef int64_t _began_ns
    cdef EpochBegin _begin       # of its epoch: RESTART
    cdef bint _begin_due         # it is not written yet
    cdef dict _names             # name -> sender
    cdef uint64_t[8] _verdicts
    cdef readonly uint64_t received, held, refused_names
    cdef readonly bint full      # the log takes no more; roll makes room
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


# What RESTART says of an epoch, which begins at the store's end.
cdef EpochBegin epoch_begin(Store store, uint64_t epoch, int64_t unix_ns)


cdef inline int64_t steady_time(Steady* clock, int64_t now_ns, int64_t unix_ns) noexcept nogil:
    # UNIX time now, as this clock has it: slewed towards the host's, never backwards.
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

# What both ends say to each other: a header of 64 bytes, little-endian, in each datagram.
#
#  0       4      5      6   8       16       24      32        40           48          56       64
#  +-------+------+------+---+-------+--------+-------+---------+------------+-----------+---------+
#  | magic | kind | line | e | nonce | cookie | index | sent_ns | reached_ns | turned_ns | arrival |
#  +-------+------+------+---+-------+--------+-------+---------+------------+-----------+---------+
#
# The sender draws the nonce, the listener answers with the cookie, a hash of nonce and address
# under its own key: nobody takes part who does not receive at the address that he sends from. An
# echo is the probe with the last three fields and e, the epoch, filled in, and as long: both ways
# cost the same.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from udpfast.core.atomics cimport load_acquire, store_release

cdef enum:
    PROBE_MAGIC = 0x31574655     # "UFW1": another version is another magic
    PROBE_HEADER = 64
    PROBE_SIZE_MAX = 2048        # fits a slot of a batch with room to see that one is too long
    CONTROL_BYTES = 1200         # what asks is never shorter than its answer: nothing to amplify
    MAIL_SLOTS = 32              # a power of two: a repeated greeting and a window of questions

cdef enum ProbeKind:
    KIND_HELLO = 1               # sender: may I? JSON behind the header; `index` probes have left
    KIND_CHALLENGE = 2           # listener: say it again, with this cookie
    KIND_WELCOME = 3             # listener: you may. JSON
    KIND_REFUSED = 4             # listener: you may not. JSON with the reason
    KIND_PROBE = 5
    KIND_ECHO = 6
    KIND_ASK = 7                 # sender: which probes from `index` on arrived? (~0: a report)
    KIND_ANSWER = 8              # listener: a bit for each, lowest first
    KIND_REPORT = 9              # listener: what was counted on the line; unasked as it ends. JSON
    KIND_BYE = 10                # sender: no more questions

cdef packed struct ProbeHeader:
    uint32_t magic
    uint8_t kind
    uint8_t line
    uint16_t epoch               # 0; in an echo, how many lines its listener had opened so far
    uint64_t nonce
    uint64_t cookie
    uint64_t index               # number of the probe, from 0
    int64_t sent_ns              # sender's UNIX time, when it was handed to the kernel
    int64_t reached_ns           # listener's UNIX time, when it was received
    int64_t turned_ns            # listener's UNIX time, when the echo was handed to the kernel
    uint64_t arrival             # place among all arrivals on the line, duplicates too

cdef struct Mail:
    uint32_t size
    uint32_t origin              # which line it came by
    uint8_t data[CONTROL_BYTES]

cdef struct Mailbox:
    # Datagrams that are no probes, from the loop to Python: one thread puts, one takes.
    uint64_t put                 # written by the loop
    uint64_t taken               # written by Python
    int64_t refused              # too long, or the box was full
    Mail mails[MAIL_SLOTS]


cdef inline void mail_put(
        Mailbox* box, const uint8_t* data, uint32_t size, uint32_t origin) noexcept nogil:
    cdef Mail* mail
    # Acquire: Python has copied what lies in the slots that it gave back.
    if size > CONTROL_BYTES or box.put - load_acquire(&box.taken) == MAIL_SLOTS:
        box.refused += 1
        return
    mail = &box.mails[box.put % MAIL_SLOTS]
    mail.size = size
    mail.origin = origin
    memcpy(mail.data, data, size)
    store_release(&box.put, box.put + 1)  # orders the bytes before it; read by mail_take


cdef inline list mail_take(Mailbox* box):
    # All that is there, as (origin, bytes).
    cdef Mail* mail
    found = []
    while load_acquire(&box.put) != box.taken:
        mail = &box.mails[box.taken % MAIL_SLOTS]
        found.append((mail.origin, <bytes>mail.data[:mail.size]))
        store_release(&box.taken, box.taken + 1)
    return found

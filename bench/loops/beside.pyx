"""Send datagrams when they are due beside others at full speed.

One thread sends both, so that they come from one core. How late it was with a due one counts for
nothing: each is timed from the kernel's stamp on (`publish_watch.StampWatch`).
"""

from dataclasses import dataclass

from libc.stdint cimport int64_t, uint8_t

from udpfast.core.atomics cimport cpu_relax
from udpfast.core.clock cimport clock_monotonic_ns
from udpfast.core.oserr cimport check
from udpfast.net.sender cimport DatagramSender, send_slots

__all__ = ["BesideResult", "send_beside"]

cdef enum:
    # So many of the others in one call: a due one waits for as many.
    CALL = 8
    SEND_ATTEMPTS = 1_000


@dataclass(frozen=True, slots=True)
class BesideResult:
    """What was sent.

    Attributes
    ----------
    unsent : int
        Due datagrams that a full queue did not take.
    others : int
        Datagrams beside them.
    elapsed_ns : int
        For all of it.
    """

    unsent: int
    others: int
    elapsed_ns: int


def send_beside(
        DatagramSender due, const uint8_t[:, ::1] rows, const int64_t[::1] sizes,
        int64_t interval_ns, DatagramSender beside, const uint8_t[:, ::1] others,
        const int64_t[::1] other_sizes) -> BesideResult:
    """Send each row when it is due, and the others round and round while none is.

    Parameters
    ----------
    due, beside : DatagramSender
        Of the rows, and of the others.
    rows, others : 2-D array of bytes
        A datagram each; without others, none are sent between.
    sizes, other_sizes : array of int64
        Bytes of each.
    interval_ns : int
        From one row to the next.

    Raises
    ------
    OSError
        A socket is of no use.
    """
    cdef int64_t begun_ns, now_ns, due_ns, sent = 0
    cdef int64_t count = rows.shape[0], unsent = 0, at = 0, kinds = others.shape[0], n = 0
    cdef int rc = 0, attempts
    with nogil:
        begun_ns = now_ns = clock_monotonic_ns()
        due_ns = begun_ns + interval_ns
        while n < count and rc >= 0:
            if now_ns >= due_ns:
                attempts = SEND_ATTEMPTS
                rc = 0
                while rc == 0 and attempts:
                    rc = send_slots(&due.batch, &rows[n, 0], 0, &sizes[n], 0, 1)
                    attempts -= 1
                unsent += rc == 0
                n += 1
                due_ns += interval_ns
            elif kinds:
                rc = send_slots(&beside.batch, &others[at, 0], others.shape[1], &other_sizes[at], 0,
                                min(CALL, kinds - at))
                sent += max(rc, 0)
                at += CALL
                if at >= kinds:
                    at = 0
            else:
                cpu_relax()
            now_ns = clock_monotonic_ns()
    check(min(rc, 0), "send", "a datagram")
    return BesideResult(unsent, sent, now_ns - begun_ns)

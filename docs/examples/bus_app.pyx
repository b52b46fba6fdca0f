# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""A compiled app of a bus, which answers requests without the GIL.

    cythonize -i bus_app.pyx
    python -c 'import bus_app; bus_app.main("store:orders", "answers")'

A message of type 1 is a request. Its answer is a message of type 2 with the same payload, and
answer n belongs to request n. An app that was killed therefore reads the requests from the
beginning, and sends the answers that its outbox has not accepted yet.
"""

import time

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

from udpfast.bus.outbox cimport UNSENT_FULL, Outbox, outbox_send
from udpfast.client.batch cimport Batch, batch_header, batch_payload
from udpfast.client.reader cimport READER_FOREVER, Reader
from udpfast.core.layout cimport KIND_BUS, RECORD_SIZE, Record

from udpfast import App
from udpfast.client.compiled import check_layouts

cdef extern from "udpfast.h":
    unsigned long long UDPFAST_RING_LAYOUT

check_layouts(UDPFAST_RING_LAYOUT)

cdef enum:
    REQUEST = 1
    ANSWER = 2


cdef int64_t answer(Batch batch, Outbox outbox, int64_t* i, uint64_t* requests) noexcept nogil:
    # Answer the requests from record i on; stop if an answer is not accepted (UNSENT_*).
    cdef const Record* record
    cdef int64_t sent
    while i[0] < batch.count:
        record = batch_header(batch, i[0])
        # A message's `object` has its sender in the lower half, its type in the upper one.
        if record.kind == KIND_BUS and <uint16_t>(record.object >> 16) == REQUEST:
            if requests[0] == outbox.header.accepted:
                sent = outbox_send(outbox, batch_payload(batch, i[0]),
                                   <uint32_t>record.length - RECORD_SIZE, ANSWER)
                if sent < 0:
                    return sent
            requests[0] += 1
        i[0] += 1
    return 0


def main(address, name, answers=0):
    """Answer requests until the outbox has accepted `answers` answers; 0 means forever."""
    cdef Batch batch
    cdef Reader reader
    cdef Outbox outbox
    cdef int64_t i, problem
    cdef uint64_t requests = 0
    with App(address, name) as app:
        reader, outbox = app.reader, app.outbox
        while not answers or requests < answers:
            batch = reader.next_batch(4096, READER_FOREVER)
            if batch is None:
                return
            i = 0
            while i < batch.count:
                with nogil:
                    problem = answer(batch, outbox, &i, &requests)
                if problem == UNSENT_FULL:
                    time.sleep(0.001)
                elif problem < 0:
                    outbox.send(b"")  # raises the error

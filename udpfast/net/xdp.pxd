# AF_XDP: receive an interface's frames without the kernel's network stack. Rings: xdp_ring.pxd.

from libc.stdint cimport int64_t

from udpfast.core.counter cimport Counters
from udpfast.net.datagram cimport DatagramBatch
from udpfast.net.xdp_ring cimport XdpPorts, XdpQueue

cdef struct XdpMapping:
    void* data
    size_t size

cdef struct XdpSlot:             # one queue, its memory, and the batch that the loop polls
    XdpQueue queue
    DatagramBatch batch
    XdpMapping frames
    XdpMapping rx
    XdpMapping fill

cdef class XdpReceiver:
    cdef object __weakref__
    cdef XdpPorts* ports
    cdef int64_t* own            # the counters in use until count_into sets others
    cdef XdpSlot* slots
    cdef readonly int queue_count
    cdef readonly str address
    cdef readonly int interface_index
    cdef readonly tuple results
    cdef readonly tuple fallbacks
    cdef readonly tuple queues
    cdef list _sockets           # AF_XDP sockets of the queues
    cdef list _members           # ordinary sockets that hold ports and group memberships
    cdef list _descriptors       # map, program, link
    cdef list _noted             # OptionResult of each option so far
    cdef object _options

    # The batch of the n-th queue, valid until close.
    cdef DatagramBatch* batch(self, int n) noexcept
    # Count frames in these counters from now on; they must outlive the receiver.
    cdef void count_into(self, Counters* counters) noexcept
    cdef _unmap(self)
    cdef _map_frames(self, XdpSlot* slot)
    cdef _map_rings(self, sock, XdpSlot* slot, where)
    cdef void _map_ring(self, int fd, XdpMapping* mapping, size_t size, long offset) except *

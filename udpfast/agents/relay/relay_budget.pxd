# Budget: what a line may carry, as a bucket of time. A datagram takes as long as the line needs for
# it at its rate; time that was not used is kept, up to a burst. No clock: `now_ns` is an argument.
#
#            burst_ns
#         <-------------->
#   ------|-------|======|----> time      ===: credit, what may leave at once
#               paid_ns  now              paid_ns behind now: a debt, what leaves later

from libc.stdint cimport int64_t, uint32_t

cdef enum:
    # Beside the UDP payload: IPv4 and UDP 28, IPv6 and UDP 48; Ethernet with its checksum 18.
    HEADERS_IPV4 = 46
    HEADERS_IPV6 = 66

cdef struct Budget:
    int64_t ps_per_byte          # 0: no limit
    int64_t burst_ns
    int64_t paid_ns              # what was taken is paid for by all time up to here
    uint32_t headers             # bytes of a datagram beside its payload


cdef inline void budget_init(
        Budget* budget, int64_t bits_per_s, int64_t burst_bytes, uint32_t headers) noexcept nogil:
    cdef int64_t ps_per_byte = 0
    if bits_per_s:
        ps_per_byte = max(<int64_t>1, <int64_t>8_000_000_000_000 // bits_per_s)
    budget.ps_per_byte = ps_per_byte
    budget.burst_ns = burst_bytes * budget.ps_per_byte // 1000
    budget.paid_ns = 0
    budget.headers = headers


cdef inline int64_t budget_cost_ns(const Budget* budget, int64_t size) noexcept nogil:
    # What a datagram costs that has so many bytes.
    return (size + budget.headers) * budget.ps_per_byte // 1000


cdef inline int64_t budget_credit_ns(const Budget* budget, int64_t now_ns) noexcept nogil:
    # Below 0: a debt.
    return min(now_ns - budget.paid_ns, budget.burst_ns)


cdef inline void budget_pay(Budget* budget, int64_t now_ns, int64_t cost_ns) noexcept nogil:
    budget.paid_ns = max(budget.paid_ns, now_ns - budget.burst_ns) + cost_ns

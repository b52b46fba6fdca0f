# The feed's configuration as the stages of an engine take it.

from libc.stdint cimport int64_t

from udpfast.feed.pipeline_state cimport PipelineSettings
from udpfast.market.gate_state cimport GateSettings
from udpfast.market.market cimport MarketSettings

cdef int pipeline_configure(PipelineSettings* settings, config) except -1
cdef int gate_configure(GateSettings* settings, config) except -1
cdef int books_configure(MarketSettings* settings, config) except -1

# How long holes of a role's lines wait; with "auto" the least that there will be.
cdef int64_t lost_packet_wait_us(config, role) except -1

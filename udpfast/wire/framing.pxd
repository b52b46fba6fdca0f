# The closed list of framings, and the one switch over it. To add a framing, write its file, add one
# member and one branch here, and one row of facts in facts.py (docs/framings.md explains it).

from libc.stdint cimport uint8_t, uint32_t

from udpfast.core.check cimport unlikely
from udpfast.wire.b3_umdf cimport b3_umdf_units
from udpfast.wire.cboe_csm cimport cboe_csm_units
from udpfast.wire.cboe_pitch cimport cboe_pitch_units
from udpfast.wire.cme_mdp3 cimport cme_mdp3_units
from udpfast.wire.coinbase_derivatives cimport coinbase_derivatives_units
from udpfast.wire.deribit_sbe cimport deribit_sbe_units
from udpfast.wire.eurex_eobi cimport eurex_eobi_units
from udpfast.wire.ice_impact cimport ice_impact_units
from udpfast.wire.iex_tp cimport iex_tp_units
from udpfast.wire.memx_memoir cimport memx_memoir_units
from udpfast.wire.miax_mach cimport miax_mach_units
from udpfast.wire.moldudp64 cimport moldudp64_units
from udpfast.wire.moldudp64le cimport moldudp64le_units
from udpfast.wire.nyse_xdp cimport nyse_xdp_units
from udpfast.wire.siac_cta cimport siac_cta_units
from udpfast.wire.siac_opra cimport siac_opra_units
from udpfast.wire.roq cimport roq_units
from udpfast.wire.unit cimport MALFORMED_KIND, MALFORMED_TOO_LONG, WIRE_SIZE_MAX, Unit

cdef enum FramingId:
    FRAMING_ROQ = 0
    FRAMING_ROQ_BIG = 1
    FRAMING_ROQ_LEGACY = 2
    FRAMING_ROQ_LEGACY_BIG = 3
    FRAMING_CME_MDP3 = 4
    FRAMING_MOLDUDP64 = 5
    FRAMING_MOLDUDP64LE = 6
    FRAMING_IEX_TP = 7
    FRAMING_DERIBIT_SBE = 8
    FRAMING_CBOE_PITCH = 9
    FRAMING_MIAX_MACH = 10
    FRAMING_ICE_IMPACT = 11
    FRAMING_NYSE_XDP = 12
    FRAMING_CBOE_CSM = 13
    FRAMING_MEMX_MEMOIR = 14
    FRAMING_SIAC_CTA = 15
    FRAMING_SIAC_OPRA = 16
    FRAMING_B3_UMDF = 17
    FRAMING_COINBASE_DERIVATIVES = 18
    FRAMING_EUREX_EOBI = 19
    FRAMING_COUNT = 20


cdef inline int framing_units(
    int framing, const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil:
    # Return the number of units in a datagram, at most `room` (UNITS_MAX is enough for any frame of
    # 1,500 bytes, 1 for all but miax_mach), or Malformed. Never reads more than `size` bytes.
    if unlikely(size > WIRE_SIZE_MAX):
        return MALFORMED_TOO_LONG
    if framing == FRAMING_ROQ:
        return roq_units(data, size, units, False, False)
    elif framing == FRAMING_ROQ_BIG:
        return roq_units(data, size, units, False, True)
    elif framing == FRAMING_ROQ_LEGACY:
        return roq_units(data, size, units, True, False)
    elif framing == FRAMING_ROQ_LEGACY_BIG:
        return roq_units(data, size, units, True, True)
    elif framing == FRAMING_CME_MDP3:
        return cme_mdp3_units(data, size, units, room)
    elif framing == FRAMING_MOLDUDP64:
        return moldudp64_units(data, size, units, room)
    elif framing == FRAMING_MOLDUDP64LE:
        return moldudp64le_units(data, size, units, room)
    elif framing == FRAMING_IEX_TP:
        return iex_tp_units(data, size, units, room)
    elif framing == FRAMING_DERIBIT_SBE:
        return deribit_sbe_units(data, size, units, room)
    elif framing == FRAMING_CBOE_PITCH:
        return cboe_pitch_units(data, size, units, room)
    elif framing == FRAMING_MIAX_MACH:
        return miax_mach_units(data, size, units, room)
    elif framing == FRAMING_ICE_IMPACT:
        return ice_impact_units(data, size, units, room)
    elif framing == FRAMING_NYSE_XDP:
        return nyse_xdp_units(data, size, units, room)
    elif framing == FRAMING_CBOE_CSM:
        return cboe_csm_units(data, size, units, room)
    elif framing == FRAMING_MEMX_MEMOIR:
        return memx_memoir_units(data, size, units, room)
    elif framing == FRAMING_SIAC_CTA:
        return siac_cta_units(data, size, units, room)
    elif framing == FRAMING_SIAC_OPRA:
        return siac_opra_units(data, size, units, room)
    elif framing == FRAMING_B3_UMDF:
        return b3_umdf_units(data, size, units, room)
    elif framing == FRAMING_COINBASE_DERIVATIVES:
        return coinbase_derivatives_units(data, size, units, room)
    elif framing == FRAMING_EUREX_EOBI:
        return eurex_eobi_units(data, size, units, room)
    return MALFORMED_KIND


# The same, not inlined: for callers outside the loop, which keeps the loop's code small.
cdef int framing_units_seldom(
    int framing, const uint8_t* data, uint32_t size, Unit* units, int room,
) noexcept nogil

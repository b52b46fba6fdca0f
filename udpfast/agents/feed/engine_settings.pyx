"""What the configuration says, as the stages of an engine take it; the memory that they need."""

from libc.stdint cimport int64_t, uint64_t

from udpfast.core.layout cimport CHANNEL_INCREMENTAL, CHANNEL_SNAPSHOT
from udpfast.feed.pipeline cimport pipeline_settings_framing
from udpfast.feed.pipeline_state cimport (
    PipelineSettings, pipeline_memory_size, pipeline_settings_default)
from udpfast.market.gate_state cimport GateSettings, gate_memory_size
from udpfast.market.market cimport MarketSettings
from udpfast.payload.payload cimport payload_memory_size
from udpfast.shm.region cimport REGION_PAGE

from udpfast.config import PAYLOADS, framing_name, payload_name
from udpfast.config.stages import WindowConfig
from udpfast.core.layout import Encoding
from udpfast.payload.traits import is_said_once
from udpfast.wire.framing import Framing

__all__ = ["engine_memory_size"]

cdef enum:
    INSTRUMENTS_MAX = 1 << 18    # of a venue


def engine_memory_size(config: FeedConfig) -> tuple[int, int]:
    """Return how many bytes an engine takes: of its slab's file, and for books, in no file."""
    cdef PipelineSettings pipeline
    cdef GateSettings gate
    cdef MarketSettings books
    pipeline_configure(&pipeline, config)
    gate_configure(&gate, config)
    books_configure(&books, config)
    windows = (pipeline_memory_size(&pipeline) + 63) & ~<size_t>63
    return (REGION_PAGE + windows + gate_memory_size(&gate),
            payload_memory_size(PAYLOADS.index(payload_name(config.wire)), &books))


cdef int64_t lost_packet_wait_us(config, role) except -1:
    wait_us = role.lost_packet_wait_us or config.window.lost_packet_wait_us
    return WindowConfig().lost_packet_wait_us if wait_us == "auto" else wait_us


cdef int pipeline_configure(PipelineSettings* settings, config) except -1:
    # The feed's configuration as the windows take it.
    pipeline_settings_default(settings)
    pipeline_settings_framing(settings, Framing(framing_name(config.wire)))
    settings.awaits_start = is_said_once(PAYLOADS.index(payload_name(config.wire)))
    settings.streams = config.wire.streams_max
    settings.encodings = 0
    for name in config.wire.encodings:
        settings.encodings |= <uint64_t>1 << Encoding[name.upper()].value
    settings.window = config.window.size
    settings.slab_cells = config.window.slab_cells
    if config.wire.framing != "roq":     # a message is one cell, and each waits in its own window
        settings.slab_cells = min(
            config.window.slab_cells, config.wire.streams_max * config.window.size)
    for channel, role in enumerate((config.incremental, config.snapshot)):
        settings.lines[<int>channel] = len(config.line_names[channel])
        settings.served[<int>channel] = len(config.line_names[channel]) > len(role.lines)
        settings.out_of_order_max_interval[<int>channel] = (
            role.out_of_order_max_interval or config.window.out_of_order_max_interval
            or config.window.size)
        settings.lost_packet_wait_ns[<int>channel] = 1_000 * lost_packet_wait_us(config, role)
        settings.lost_packet_wait_auto[<int>channel] = (
            role.lost_packet_wait_us or config.window.lost_packet_wait_us) == "auto"
    if config.retransmission.enabled:
        settings.lost_packet_wait_ns[CHANNEL_INCREMENTAL] += 1_000 * config.retransmission.wait_us
    settings.line_dead_ns = config.window.line_dead_ms * 1_000_000
    settings.on_gap = config.window.on_gap == "latest_run"
    settings.session_adopt_datagrams = config.session.adopt_datagrams
    settings.stale_session_grace_ns = int(config.session.stale_grace_s * 1e9)
    settings.restart_datagrams = config.session.restart_datagrams
    settings.inactivity_timeout_ns = config.session.inactivity_timeout_ms * 1_000_000
    settings.doubt_when_silent = config.session.doubt_when_silent


cdef int gate_configure(GateSettings* settings, config) except -1:
    # Only Roq's messages pass the gate: another framing's feed pays nothing for it.
    gated = config.wire.framing == "roq"
    settings.objects_max = config.objects.max if gated else 0
    settings.collect_messages_max = config.objects.collect_messages
    settings.collect_bytes = config.objects.collect_bytes if gated else 0
    settings.snapshots = len(config.line_names[CHANNEL_SNAPSHOT]) > 0


cdef int books_configure(MarketSettings* settings, config) except -1:
    settings.levels = config.books.levels
    settings.orders = config.books.orders
    settings.top = config.books.top
    settings.depth = config.books.depth
    settings.places[0] = config.books.places
    settings.places[1] = config.books.places_implied
    settings.orders_max = config.books.orders_max
    settings.instruments_max = min(config.ring.names, INSTRUMENTS_MAX)
    settings.awaits_definitions = config.has_definitions
    settings.loops = config.has_loops
    settings.held_max = (
        config.snapshot_server.held_changes if config.snapshot_server.enabled else 0)

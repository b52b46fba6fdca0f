# BusLive: the file `bus.live` of a store's directory, mapped by readers and apps. The daemon writes
# its state at every turn (archive/bus_files.Live), and the constant part when it starts.

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    LIVE_MAGIC = 0x4556494C53554255  # "UBUSLIVE"; 0: no daemon has written it yet

cdef struct BusLive:             # 4096 bytes
    uint64_t magic
    int64_t alive_ns             # when it was last written, monotonic
    uint64_t end                 # position behind the last record
    uint64_t synced
    uint64_t released            # readers may see everything below, if there is a gate
    uint64_t kept
    uint64_t epoch
    uint64_t promised
    uint64_t cuts  # grows when records may have been set aside: readers check their place
    uint64_t following           # 1: the stream arrives
    uint64_t gate                # 0: readers may see everything
    uint64_t by_feed             # 1: a feed writes the store, and no app can
    uint64_t feed_epoch  # epoch of the feed that writes, or last did since the daemon started
    uint64_t feed_began          # position of that feed's RESTART
    uint64_t feed_index          # index of that RESTART
    uint64_t feed_end            # 0: no feed has run; all ones: it runs; else where it ended
    uint64_t feed_failed         # 1: an error ended that feed; another one may continue
    char host[32]                # name of this host in the bus
    char shared[3928]            # directory of outboxes and of what wakes readers

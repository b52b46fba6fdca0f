# BusLive: the file `bus.live` of a store's directory, mapped by readers of the store and by apps.
# Its daemon writes it at every turn (archive/bus_files.Live), and when it starts what stays.

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    LIVE_MAGIC = 0x4556494C53554255  # "UBUSLIVE"; 0: no daemon has said anything yet

cdef struct BusLive:             # 4096 bytes
    uint64_t magic
    int64_t alive_ns             # monotonic: when it was written last
    uint64_t end                 # position behind the last record
    uint64_t synced
    uint64_t released            # readers may see everything before this position: see `gate`
    uint64_t kept
    uint64_t epoch
    uint64_t promised
    uint64_t cuts                # grows when records may have been set aside: look where they end
    uint64_t following           # 1: the stream comes
    uint64_t gate                # 0: readers may see everything
    uint64_t by_feed             # 1: a feed writes it, and no app can
    uint64_t feed_epoch          # of the feed that writes it, or did last since its daemon started,
    uint64_t feed_began          # position of its RESTART,
    uint64_t feed_index          # and that one's index
    uint64_t feed_end            # 0: none has run; all ones: it runs; else where it has ended
    uint64_t feed_failed         # 1: an error ended that feed: the next one goes on
    char host[32]                # which of the bus's hosts this is
    char shared[3928]            # directory of outboxes and of what wakes readers

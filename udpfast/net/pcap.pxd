# Capture files: the UDP datagrams of a pcap or pcapng file, parsed in place.
#
# A parser is fed any window of the file's bytes, from where it left off. It never reads outside
# the window, whatever the bytes say: lengths are compared with what is left before they are used.
# Sources: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.net.link cimport LINK_VERDICT_COUNT, LinkDatagram, LinkFrame

cdef enum:
    INTERFACES_MAX = 256         # described interfaces of one pcapng section
    RECORD_SIZE_MAX = 4194304    # a longer record or block is damage: captures hold up to 256 KiB

cdef enum:  # CaptureCount: the verdicts of link.pxd, one for each frame, then its own
    CAPTURE_FRAMES = LINK_VERDICT_COUNT  # frames = the sum of the verdicts
    CAPTURE_BLOCKS_SKIPPED       # pcapng blocks that hold no frame (statistics, names, comments)
    CAPTURE_COUNT

cdef struct CaptureInterface:
    uint32_t link_type
    uint32_t snap_size           # 0 = whole frames
    uint8_t resolution           # if_tsresol: ticks of 10^-n s, with bit 7 of 2^-n s
    int64_t offset_s             # if_tsoffset

cdef struct CaptureFrame:
    LinkFrame link
    int64_t timestamp_ns         # UNIX ns; 0 = the file has none
    const uint8_t* loop          # LOOP_SIZE bytes; NULL = nobody's loop

cdef enum:  # CaptureEvent: what an entry is
    CAPTURE_FOREIGN = 0          # a datagram of anybody's capture
    CAPTURE_OWN = 1              # a datagram that our loop received, with the loop's own clocks
    CAPTURE_EXPIRE = 2           # no datagram: time passed in the loop, and it mattered
    CAPTURE_FINISH = 3           # no datagram: the loop ended its input
    CAPTURE_RESTART = 4          # no datagram: another loop took over

cdef struct CaptureEntry:      # 80 bytes; the numpy dtype CAPTURED names the same fields
    int64_t timestamp_ns
    LinkDatagram datagram        # its offset counts from the start of the window
    uint32_t frame               # 0-based number of the frame in the file
    int64_t now_ns               # of our loop: its monotonic clock, ...
    int64_t unix_ns              # ... and its UNIX clock. Both only where event is not FOREIGN
    uint32_t flags               # DatagramFlag; the same
    uint8_t channel              # Channel; the same
    uint8_t line                 # the same
    uint8_t event                # CaptureEvent
    uint8_t address              # as Datagram.address, where event is not FOREIGN

# What our loop knew of a frame travels in pcapng under numbers that are free for local use: as an
# option of an enhanced packet block, and, where there is no frame, as a block.
cdef enum:
    OPTION_LOOP = 0x8D4C
    BLOCK_LOOP = 0x8D4C0001
    LOOP_MAGIC = 0x66706475      # "udpf": others may use the same numbers
    LOOP_SIZE = 28               # magic, now_ns, unix_ns, flags, channel, line, event, address

cdef struct CaptureParser:
    bint pcapng
    bint swapped                 # the file's byte order is not ours
    bint started                 # pcapng: a section header was read
    const char* damage           # why nothing more can be read; NULL = nothing wrong
    uint32_t interfaces_count
    bint events                  # whether entries without a datagram are wanted
    uint64_t counts[CAPTURE_COUNT]
    CaptureInterface interfaces[INTERFACES_MAX]

# Reads the file's header. Returns its size (0: pcapng, whose first block is read as such), or -1:
# neither pcap nor pcapng, or a version of it that is not read. `size` must be 24 or the whole file.
cdef int capture_begin(CaptureParser* parser, const uint8_t* window, size_t size) noexcept nogil

# Finds datagrams from `*position` on and moves it behind what was read. Returns how many entries
# were filled; fewer than `capacity` = the window ends inside a record (bring more from `*position`
# on), or parser.damage says why the file ends here.
cdef size_t capture_read(
    CaptureParser* parser, const uint8_t* window, size_t size, size_t* position,
    CaptureEntry* entries, size_t capacity) noexcept nogil

# Capture files: the UDP datagrams of a pcap or pcapng file, parsed in place.
#
# The parser takes any window of the file's bytes, from where it stopped before. It never reads
# outside the window: every length is compared with the bytes left before it is used.
# Sources: draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

from udpfast.net.link cimport LINK_VERDICT_COUNT, LinkDatagram, LinkFrame

cdef enum:
    INTERFACES_MAX = 256         # described interfaces of one pcapng section
    RECORD_SIZE_MAX = 4194304    # a longer record or block is damage: frames have up to 256 KiB

cdef enum:  # CaptureCount: one counter per verdict of link.pxd, then these
    CAPTURE_FRAMES = LINK_VERDICT_COUNT  # frames: the sum of the verdicts
    CAPTURE_BLOCKS_SKIPPED       # pcapng blocks without a frame (statistics, names, comments)
    CAPTURE_COUNT

cdef struct CaptureInterface:
    uint32_t link_type
    uint32_t snap_size           # 0: whole frames
    uint8_t resolution           # if_tsresol: ticks of 10^-n s; if bit 7 is set, of 2^-n s
    int64_t offset_s             # if_tsoffset

cdef struct CaptureFrame:
    LinkFrame link
    int64_t timestamp_ns         # UNIX ns; 0: the file has no stamp
    const uint8_t* loop          # LOOP_SIZE bytes of a feed's loop; NULL: not captured by a feed

cdef enum:  # CaptureEvent: what an entry is
    CAPTURE_FOREIGN = 0          # a datagram that another program captured
    CAPTURE_OWN = 1              # a datagram that a feed's loop received, with the loop's clocks
    CAPTURE_EXPIRE = 2           # no datagram: time passed in the loop, and changed its state
    CAPTURE_FINISH = 3           # no datagram: the loop's input ended
    CAPTURE_RESTART = 4          # no datagram: another loop took over
    CAPTURE_DOUBT = 5            # no datagram: what the kernel dropped did not show until then

cdef struct CaptureEntry:      # 80 bytes; the numpy dtype CAPTURED names the same fields
    int64_t timestamp_ns
    LinkDatagram datagram        # its offset counts from the start of the window
    uint32_t frame               # 0-based number of the frame in the file
    int64_t now_ns               # the loop's monotonic clock; not for FOREIGN
    int64_t unix_ns              # the loop's UNIX clock; not for FOREIGN
    uint32_t flags               # DatagramFlag; not for FOREIGN
    uint8_t channel              # Channel; not for FOREIGN
    uint8_t line                 # not for FOREIGN
    uint8_t event                # CaptureEvent
    uint8_t address              # as Datagram.address; not for FOREIGN

# pcapng stores what the loop knew about a datagram under numbers reserved for local use: in an
# option of the enhanced packet block, or, without a datagram, in a block of its own.
cdef enum:
    OPTION_LOOP = 0x8D4C
    BLOCK_LOOP = 0x8D4C0001
    LOOP_MAGIC = 0x66706475      # "udpf": other programs may use the same numbers
    LOOP_SIZE = 28               # magic, now_ns, unix_ns, flags, channel, line, event, address

cdef struct CaptureParser:
    bint pcapng
    bint swapped                 # the file's byte order is not ours
    bint started                 # pcapng: a section header was read
    const char* damage           # why no more can be read; NULL: no damage
    uint32_t interfaces_count
    bint events                  # return entries without a datagram, too
    uint64_t counts[CAPTURE_COUNT]
    CaptureInterface interfaces[INTERFACES_MAX]

# Reads the file's header. Returns its size (0 for pcapng, whose header is its first block), or -1:
# neither pcap nor pcapng, or an unsupported version. `size` must be at least 24, or the whole file.
cdef int capture_begin(CaptureParser* parser, const uint8_t* window, size_t size) noexcept nogil

# Finds datagrams from `*position` on, and moves it behind the records read. Returns how many
# entries were filled. Fewer than `capacity`: the window ends inside a record (call again with one
# that begins at `*position`), or parser.damage says why the file ends here.
cdef size_t capture_read(
    CaptureParser* parser, const uint8_t* window, size_t size, size_t* position,
    CaptureEntry* entries, size_t capacity) noexcept nogil

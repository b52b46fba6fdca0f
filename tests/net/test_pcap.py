"""Captures: every container, link type and damage; counts equal those of another reader."""

import gzip
import json
import random
import struct
from pathlib import Path

import pytest

from tests.shared import shared
from udpfast.errors import FormatError
from udpfast.net.pcap import CAPTURED, CapturedDatagram, CaptureReader

PORTS = struct.pack(">HH", 4000, 9001)
SOURCE, GROUP = "10.0.0.1", "239.1.2.3"


def udp(payload: bytes, claimed: int | None = None) -> bytes:
    size = 8 + len(payload) if claimed is None else claimed
    return PORTS + struct.pack(">HH", size, 0) + payload


def ipv4(
    body: bytes,
    protocol: int = 17,
    fragment: int = 0,
    options: bytes = b"",
    total: int | None = None,
) -> bytes:
    size = 20 + len(options) + len(body) if total is None else total
    return (
        struct.pack(
            ">BBHHHBBH4s4s",
            0x45 + len(options) // 4,
            0,
            size,
            1,
            fragment,
            64,
            protocol,
            0,
            bytes([10, 0, 0, 1]),
            bytes([239, 1, 2, 3]),
        )
        + options
        + body
    )


def ipv6(body: bytes, following: int = 17) -> bytes:
    return (
        struct.pack(">IHBB", 6 << 28, len(body), following, 64)
        + bytes(15)
        + b"\x01"
        + bytes([0xFF, 2])
        + bytes(13)
        + b"\x09"
        + body
    )


def ethernet(body: bytes, ethertype: int = 0x0800, tags: tuple[int, ...] = ()) -> bytes:
    header = bytes(12)
    for tag in tags:
        header += struct.pack(">HH", tag, 7)
    return header + struct.pack(">H", ethertype) + body


def pcap(
    frames: list[tuple[int, bytes]],
    link_type: int = 1,
    order: str = "<",
    nanoseconds: bool = False,
    kept: int = 1 << 20,
) -> bytes:
    """Frames are (UNIX ns, bytes); of each at most `kept` bytes are captured."""
    magic, unit = (0xA1B23C4D, 1) if nanoseconds else (0xA1B2C3D4, 1000)
    parts = [struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, 262_144, link_type)]
    for stamp, frame in frames:
        parts.append(
            struct.pack(
                order + "IIII",
                stamp // 10**9,
                stamp % 10**9 // unit,
                min(kept, len(frame)),
                len(frame),
            )
            + frame[:kept]
        )
    return b"".join(parts)


def block(block_type: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    size = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", block_type) + size + body + size


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(
    order: str = "<",
    link_type: int = 1,
    resolution: int | None = None,
    offset_s: int | None = None,
    snap: int = 0,
) -> bytes:
    options = struct.pack(order + "HH", 2, 3) + b"lo0\0"  # if_name, to be skipped
    if resolution is not None:
        options += struct.pack(order + "HHB3x", 9, 1, resolution)
    if offset_s is not None:
        options += struct.pack(order + "HHq", 14, 8, offset_s)
    return block(1, struct.pack(order + "HHI", link_type, 0, snap) + options + bytes(4), order)


def enhanced(frame: bytes, ticks: int, order: str = "<", number: int = 0) -> bytes:
    return block(
        6,
        struct.pack(
            order + "IIIII", number, ticks >> 32, ticks & 0xFFFFFFFF, len(frame), len(frame)
        )
        + frame,
        order,
    )


def read(
    tmp_path: Path, content: bytes, **options: int
) -> tuple[list[CapturedDatagram], CaptureReader]:
    path = tmp_path / "capture"
    path.write_bytes(content)
    reader = CaptureReader(path, **options)
    datagrams = list(reader)
    reader.close()
    counts = reader.counts
    assert counts["frames"] == sum(
        counts[name]
        for name in (
            "datagrams",
            "fragments",
            "not_udp",
            "not_ip",
            "truncated",
            "malformed",
            "link_unknown",
        )
    )
    assert counts["datagrams"] == len(datagrams)
    return datagrams, reader


FRAME = ethernet(ipv4(udp(b"payload")))
STAMP = 1_700_000_000_123_456_789
EXPECTED = CapturedDatagram(STAMP, (SOURCE, 4000), (GROUP, 9001), b"payload")


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("nanoseconds", [False, True])
@pytest.mark.parametrize("compressed", [False, True])
def test_pcap_both_byte_orders_and_resolutions(
    tmp_path: Path, order: str, nanoseconds: bool, compressed: bool
) -> None:
    content = pcap([(STAMP, FRAME), (STAMP + 10**9, FRAME)], 1, order, nanoseconds)
    datagrams, reader = read(tmp_path, gzip.compress(content) if compressed else content)
    first = STAMP if nanoseconds else STAMP // 1000 * 1000
    assert datagrams == [
        EXPECTED._replace(timestamp_ns=first),
        EXPECTED._replace(timestamp_ns=first + 10**9),
    ]
    assert reader.damage is None


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("resolution", "ticks", "expected"),
    [
        (None, STAMP // 1000, STAMP // 1000 * 1000),
        (9, STAMP, STAMP),
        (0, 1_700_000_000, 1_700_000_000 * 10**9),
        (12, 1_700_000_123_456, 1_700_000_123),
        (0x80 | 20, (1_700_000_000 << 20) + (1 << 19), 1_700_000_000_500_000_000),
        (0x80 | 32, (1_700_000_000 << 32) + (3 << 30), 1_700_000_000_750_000_000),
        (0x80 | 60, 3 << 59, 1_500_000_000),
    ],
)
def test_pcapng_time_resolutions(
    tmp_path: Path, order: str, resolution: int | None, ticks: int, expected: int
) -> None:
    content = section(order) + interface(order, resolution=resolution)
    content += enhanced(FRAME, ticks, order)
    assert read(tmp_path, content)[0] == [EXPECTED._replace(timestamp_ns=expected)]


def test_pcapng_offset_sections_interfaces_and_other_blocks(tmp_path: Path) -> None:
    raw = ipv4(udp(b"payload"))
    content = (
        section()
        + block(5, bytes(12))
        + interface(resolution=9, offset_s=100)
        + interface(link_type=101, resolution=9)
        + enhanced(FRAME, STAMP)
        + enhanced(raw, STAMP, number=1)
        + section(">")
        + block(4, bytes(8), ">")
        + interface(">", link_type=228, resolution=9)
        + enhanced(raw, STAMP, ">")
    )
    datagrams, reader = read(tmp_path, content)
    assert datagrams == [EXPECTED._replace(timestamp_ns=STAMP + 100 * 10**9), EXPECTED, EXPECTED]
    assert reader.counts["blocks_skipped"] == 7


def test_pcapng_simple_blocks_have_no_time_and_obey_the_snap_length(tmp_path: Path) -> None:
    simple = block(3, struct.pack("<I", len(FRAME)) + FRAME)
    cut = block(3, struct.pack("<I", len(FRAME)) + FRAME[:40])
    assert read(tmp_path, section() + interface() + simple)[0] == [
        EXPECTED._replace(timestamp_ns=0)
    ]
    datagrams, reader = read(tmp_path, section() + interface(snap=40) + cut)
    assert (datagrams, reader.counts["truncated"]) == ([], 1)


@pytest.mark.parametrize(
    ("link_type", "frame"),
    [
        (1, ethernet(ipv4(udp(b"payload")))),
        (1, ethernet(ipv4(udp(b"payload"))) + bytes(11)),
        (1, ethernet(ipv4(udp(b"payload")), tags=(0x8100,))),
        (1, ethernet(ipv4(udp(b"payload")), tags=(0x88A8, 0x8100))),
        (1, ethernet(ipv4(udp(b"payload"), options=bytes(8)))),
        (1, ethernet(ipv4(udp(b"payload"), total=0))),
        (113, bytes(14) + b"\x08\x00" + ipv4(udp(b"payload"))),
        (276, b"\x08\x00" + bytes(18) + ipv4(udp(b"payload"))),
        (101, ipv4(udp(b"payload"))),
        (12, ipv4(udp(b"payload"))),
        (228, ipv4(udp(b"payload"))),
        (0, struct.pack("<I", 2) + ipv4(udp(b"payload"))),
        (0, struct.pack(">I", 2) + ipv4(udp(b"payload"))),
        (108, struct.pack(">I", 2) + ipv4(udp(b"payload"))),
    ],
)
def test_link_types_lead_to_the_same_datagram(tmp_path: Path, link_type: int, frame: bytes) -> None:
    datagrams, _ = read(tmp_path, pcap([(STAMP, frame)], link_type, nanoseconds=True))
    assert datagrams == [EXPECTED]


@pytest.mark.parametrize(
    ("link_type", "frame"),
    [
        (1, ethernet(ipv6(udp(b"payload")), 0x86DD)),
        (1, ethernet(ipv6(udp(b"payload")), 0x86DD, tags=(0x8100,))),
        (1, ethernet(ipv6(b"\x11\0" + bytes(6) + udp(b"payload"), 0), 0x86DD)),
        (
            1,
            ethernet(
                ipv6(b"\x3c\0" + bytes(6) + b"\x11\1" + bytes(14) + udp(b"payload"), 0), 0x86DD
            ),
        ),
        (229, ipv6(udp(b"payload"))),
        (101, ipv6(udp(b"payload"))),
        (0, struct.pack("<I", 30) + ipv6(udp(b"payload"))),
    ],
)
def test_link_types_with_ipv6(tmp_path: Path, link_type: int, frame: bytes) -> None:
    datagrams, _ = read(tmp_path, pcap([(STAMP, frame)], link_type, nanoseconds=True))
    assert datagrams == [CapturedDatagram(STAMP, ("::1", 4000), ("ff02::9", 9001), b"payload")]


@pytest.mark.parametrize(
    ("name", "link_type", "frame"),
    [
        ("fragments", 1, ethernet(ipv4(udp(b"x"), fragment=0x2000))),
        ("fragments", 1, ethernet(ipv4(b"rest of it", fragment=0x0010))),
        ("fragments", 1, ethernet(ipv6(bytes(16), 44), 0x86DD)),
        ("not_udp", 1, ethernet(ipv4(bytes(20), protocol=6))),
        ("not_udp", 1, ethernet(ipv6(bytes(8), 58), 0x86DD)),
        ("not_ip", 1, ethernet(bytes(28), 0x0806)),
        ("not_ip", 113, bytes(14) + b"\x08\x06" + bytes(28)),
        ("link_unknown", 105, bytes(60)),
        ("malformed", 1, b"short"),
        ("malformed", 1, ethernet(b"", tags=(0x8100,))),
        ("malformed", 1, ethernet(ipv4(udp(b"x"))[:19])),
        ("malformed", 1, ethernet(b"\x65" + ipv4(udp(b"x"))[1:])),
        ("malformed", 1, ethernet(b"\x44" + ipv4(udp(b"x"))[1:])),
        ("malformed", 1, ethernet(ipv4(udp(b"x"), total=19))),
        ("malformed", 1, ethernet(ipv4(udp(b"x"), total=27))),
        ("malformed", 1, ethernet(ipv4(udp(b"x", claimed=7)))),
        ("malformed", 1, ethernet(ipv4(udp(b"x", claimed=10)))),
        ("malformed", 1, ethernet(ipv6(b"\x11\5" + bytes(6) + udp(b"x"), 0), 0x86DD)),
        ("malformed", 101, b""),
    ],
)
def test_frames_without_a_whole_datagram_are_counted_apart(
    tmp_path: Path, name: str, link_type: int, frame: bytes
) -> None:
    datagrams, reader = read(tmp_path, pcap([(STAMP, frame)], link_type))
    assert datagrams == []
    assert (reader.counts[name], reader.counts["frames"], reader.damage) == (1, 1, None)


def test_frames_cut_by_the_capture_are_counted_unless_only_padding_is_missing(
    tmp_path: Path,
) -> None:
    whole = len(FRAME)
    for kept in range(1, whole):
        datagrams, reader = read(tmp_path, pcap([(STAMP, FRAME)], kept=kept))
        assert (datagrams, reader.counts["truncated"]) == ([], 1)
    datagrams, _ = read(tmp_path, pcap([(STAMP, FRAME + bytes(18))], kept=whole, nanoseconds=True))
    assert datagrams == [EXPECTED]


def test_empty_payload_is_a_datagram(tmp_path: Path) -> None:
    datagrams, _ = read(tmp_path, pcap([(STAMP, ethernet(ipv4(udp(b""))))], nanoseconds=True))
    assert datagrams == [EXPECTED._replace(payload=b"")]


@pytest.mark.parametrize(
    ("head", "record"),
    [
        (pcap([]), pcap([(STAMP, FRAME)])[24:]),
        (section() + interface(), enhanced(FRAME, 1)),
    ],
)
def test_file_cut_anywhere_gives_what_came_before_and_says_so(
    tmp_path: Path, head: bytes, record: bytes
) -> None:
    content = head + record * 3
    for end in range(len(head), len(content) + 1):
        datagrams, reader = read(tmp_path, content[:end])
        whole, rest = divmod(end - len(head), len(record))
        assert len(datagrams) == whole
        assert (reader.damage is None) == (rest == 0)


@pytest.mark.parametrize("chunk", [64, 100, 127, 1000])
def test_chunks_smaller_than_records_change_nothing(tmp_path: Path, chunk: int) -> None:
    frames = [(STAMP + index, ethernet(ipv4(udp(bytes([index]) * index)))) for index in range(200)]
    content = pcap(frames, nanoseconds=True)
    assert read(tmp_path, content, chunk_bytes=chunk)[0] == read(tmp_path, content)[0]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "found nothing"),
        (b"\xd4\xc3", "found d4 c3"),
        (b"#!/bin/sh\n" + bytes(30), "expected pcap 2.x or pcapng, found 23 21 2f"),
        (pcap([])[:20], "expected pcap"),
        (pcap([]).replace(b"\x02\0\x04\0", b"\x03\0\x04\0"), "expected pcap 2.x"),
    ],
)
def test_other_files_are_refused_with_what_was_found(
    tmp_path: Path, content: bytes, text: str
) -> None:
    with pytest.raises(FormatError, match=text):
        read(tmp_path, content)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            pcap([(STAMP, FRAME)]) + struct.pack("<IIII", 1, 1, 1 << 30, 60),
            "claims more than 4 MiB",
        ),
        (
            section() + interface() + enhanced(FRAME, 1) + enhanced(FRAME, 1, number=1),
            "not described",
        ),
        (section() + interface() + enhanced(FRAME, 1) + block(6, bytes(8)), "too short"),
        (
            section()
            + interface()
            + enhanced(FRAME, 1)
            + block(6, struct.pack("<IIIII", 0, 0, 0, 99, 99)),
            "more bytes than it has",
        ),
        (
            section() + interface() + enhanced(FRAME, 1) + struct.pack("<III", 6, 13, 0),
            "multiple of 4",
        ),
        (
            section() + interface() + enhanced(FRAME, 1) + struct.pack("<III", 9, 1 << 30, 0),
            "4 MiB",
        ),
        (
            section() + interface() + enhanced(FRAME, 1) + struct.pack("<IIII", 9, 16, 0, 12),
            "differ",
        ),
        (section() + interface() + enhanced(FRAME, 1) + block(1, bytes(4)), "interface block"),
        (
            section() + interface() + enhanced(FRAME, 1) + struct.pack("<III", 0x0A0D0D0A, 28, 0),
            "magic",
        ),
    ],
)
def test_damage_ends_the_reading_and_names_the_place(
    tmp_path: Path, content: bytes, text: str
) -> None:
    datagrams, reader = read(tmp_path, content)
    assert len(datagrams) == 1
    assert text in reader.damage
    assert "at byte" in reader.damage


def test_damaged_gzip_gives_what_came_before(tmp_path: Path) -> None:
    content = pcap(
        [(STAMP, ethernet(ipv4(udp(random.Random(index).randbytes(400))))) for index in range(2000)]
    )
    packed = gzip.compress(content)
    datagrams, reader = read(tmp_path, packed[: len(packed) // 2])
    assert 900 < len(datagrams) < 1100
    assert reader.damage.startswith("gzip: ")


def test_batch_is_a_column_of_headers_over_one_buffer(tmp_path: Path) -> None:
    path = tmp_path / "capture"
    path.write_bytes(pcap([(STAMP + index, FRAME) for index in range(10)], nanoseconds=True))
    with CaptureReader(path) as reader:
        batch = reader.read_batch(7)
        assert batch.headers.dtype == CAPTURED
        assert list(batch.headers["timestamp_ns"]) == [STAMP + index for index in range(7)]
        assert set(batch.headers["destination_port"]) == {9001}
        assert bytes(batch.payload(6)) == b"payload"
        assert len(reader.read_batch(7).headers) == 3
        assert reader.read_batch(7) is None
        assert bytes(batch.payload(0)) == b"payload"


def expected_captures() -> list[dict]:
    folder = shared("data", "pcap")
    return [
        entry
        for name in ("expected.json", "expected_singles.json")
        for entry in json.loads((folder / name).read_text())["files"]
    ]


def test_real_captures_give_the_flows_that_another_reader_found() -> None:
    for expected in expected_captures():
        flows: dict[tuple[str, int, str, int], list[int]] = {}
        with CaptureReader(shared("data", "pcap", expected["file"])) as reader:
            stamps = []
            for datagram in reader:
                stamps.append(datagram.timestamp_ns)
                flow = flows.setdefault((*datagram.source, *datagram.destination), [0, 0, 0])
                flow[0] += 1
                flow[1] += len(datagram.payload)
                flow[2] = max(flow[2], len(datagram.payload))
        cut_off = [entry["frame"] for entry in expected["unparsed"]]
        counts = reader.counts
        assert counts["frames"] == expected["frames"], expected["file"]
        assert counts["datagrams"] == expected["udp_datagrams"] - len(cut_off)
        assert (reader.damage is None) == (not cut_off)
        assert flows == {
            (flow["src"], flow["sport"], flow["dst"], flow["dport"]): [
                flow["datagrams"],
                flow["payload_bytes"],
                flow["max_payload"],
            ]
            for flow in expected["flows"]
        }, expected["file"]
        assert stamps[0] == expected["first_ts_ns"]
        if not cut_off:
            assert stamps[-1] == expected["last_ts_ns"]


def test_captures_of_the_protocol_hold_the_datagrams_of_each_port() -> None:
    expected = json.loads(shared("wire", "capture", "expected.json").read_text())
    for name in ("clean", "rough"):
        ports: dict[int, int] = {}
        with CaptureReader(shared("wire", "capture", expected[name]["file"])) as reader:
            while (batch := reader.read_batch()) is not None:
                for port in batch.headers["destination_port"]:
                    ports[int(port)] = ports.get(int(port), 0) + 1
        assert sum(ports.values()) == expected[name]["datagrams"]
        if "datagrams_by_port" in expected[name]:
            assert {str(port): count for port, count in ports.items()} == expected[name][
                "datagrams_by_port"
            ]


SEEDS = [
    pcap([(STAMP, FRAME), (STAMP, ethernet(ipv6(udp(b"x" * 40)), 0x86DD, tags=(0x8100,)))] * 3),
    pcap([(STAMP, ipv4(udp(b"y" * 9)))] * 5, 101, ">", nanoseconds=True),
    section()
    + interface(resolution=9, offset_s=5)
    + enhanced(FRAME, STAMP) * 3
    + block(3, struct.pack("<I", len(FRAME)) + FRAME)
    + section(">")
    + interface(">")
    + enhanced(FRAME, STAMP, ">"),
]


def mutate(rng: random.Random, content: bytes) -> bytes:
    mutated = bytearray(content)
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(mutated))
        choice = rng.randrange(4)
        if choice == 0:
            mutated[place] ^= 1 << rng.randrange(8)
        elif choice == 1:
            mutated[place : place + 4] = rng.choice(
                [bytes(4), b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x01\0\0\0", b"\0\0\0\x01"]
            )
        elif choice == 2:
            del mutated[place : place + rng.randint(1, 16)]
        else:
            mutated[place:place] = mutated[rng.randrange(len(mutated)) :][: rng.randint(1, 64)]
        if not mutated:
            return b""
    return bytes(mutated)


@pytest.mark.parametrize("seed", range(4))
def test_mutated_files_never_crash_and_stay_accounted(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for number in range(500):
        content = mutate(rng, rng.choice(SEEDS))
        if number % 10 == 0:
            content = mutate(rng, gzip.compress(content, 1))
        try:
            datagrams, _ = read(tmp_path, content)
        except FormatError:
            continue
        assert sum(len(datagram.payload) for datagram in datagrams) <= 64 * max(len(content), 1)

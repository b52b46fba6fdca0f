"""The dissector, in the real tshark: golden headers, sessions, copies, and what was lost."""

import gzip
import json
import random
import resource
import shutil
import struct
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from lab.frames import datagram, datagrams
from tests.shared import ROOT, shared
from udpfast.payload.roq.schema import MESSAGES

SCRIPT = ROOT / "packaging" / "wireshark" / "udpfast.lua"
A, B, SNAPSHOT = 9001, 9101, 9002
HEADER = ("object_type", "object_id", "session_id", "seqno", "last_seqno")


@pytest.fixture
def tshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    found = shutil.which("tshark")
    if found is None:
        pytest.skip("no tshark here: apt-get install tshark")
    monkeypatch.setenv("HOME", str(tmp_path))  # nobody's own plugins
    return found


def capture(path: Path, sent: Sequence[tuple[int, bytes]], kept: int = 65535) -> Path:
    """Write datagrams, each with its destination's port, as a capture of IPv4.

    kept : int
        Bytes of each that are kept, as by `tcpdump -s`.
    """
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, kept, 101))
        for number, (port, payload) in enumerate(sent):
            udp = struct.pack(">HHHH", 40000, port, 8 + len(payload), 0)
            frame = framed(17, udp + payload, number)
            lengths = (min(len(frame), kept), len(frame))
            file.write(struct.pack("<IIII", number // 1000, number % 1000 * 1000, *lengths))
            file.write(frame[:kept])
    return path


def framed(protocol: int, content: bytes, number: int = 0) -> bytes:
    """Return content of a protocol, behind a header of IPv4."""
    return (
        struct.pack(
            ">BBHHHBBH4s4s",
            *(0x45, 0, 20 + len(content), number & 0xFFFF, 0, 64, protocol, 0),
            *(bytes([127, 0, 0, 1]), bytes([239, 1, 1, 1])),
        )
        + content
    )


def dissected(
    tshark: str, path: Path, fields: Sequence[str], *options: str
) -> list[dict[str, str]]:
    """Return the fields of each frame that has any, as tshark prints them in its second pass."""
    command = [tshark, "-n", "-X", f"lua_script:{SCRIPT}", "-2", "-r", str(path), "-T", "fields"]
    for field in fields:
        command += ["-e", "udp.dstport" if field == "port" else f"roqudp.{field}"]
    result = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Lua" not in result.stderr, result.stderr
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    return [dict(zip(fields, row, strict=True)) for row in rows]


@pytest.mark.parametrize("revision", ["current", "legacy"])
def test_golden_headers_are_read_as_expected(tshark: str, tmp_path: Path, revision: str) -> None:
    cases = json.loads(shared("wire", "golden", f"headers_{revision}.json").read_text())
    known = [case for case in cases["datagrams"] if case["hex"]]  # an empty one goes to nobody
    path = capture(tmp_path / "golden.pcap", [(A, bytes.fromhex(case["hex"])) for case in known])
    fields = (*HEADER, "encoding", "snapshot", "fragment", "fragment_max", "heartbeat", "refused")
    options = ("-o", f"roqudp.legacy:{'TRUE' if revision == 'legacy' else 'FALSE'}")
    found = dissected(tshark, path, fields, *options)
    assert len(found) == len(known)
    for case, row in zip(known, found, strict=True):
        expected = case["expect"]
        assert bool(row["refused"]) == (not expected["ok"]), case["name"]
        if not expected["ok"]:
            continue
        header = expected["header"]
        for field in (*HEADER, "encoding", "fragment", "fragment_max"):
            assert int(row[field]) == header[field], (case["name"], field)
        if revision == "current":
            assert row["snapshot"] in (("1", "True") if header["snapshot"] else ("0", "False"))
        assert bool(row["heartbeat"]) == expected["heartbeat"], case["name"]


def test_big_endian_header_is_read_if_the_preference_says_so(tshark: str, tmp_path: Path) -> None:
    payload = datagram(b"x", seqno=0x01020304, session_id=0x0506, byteorder="big")
    path = capture(tmp_path / "big.pcap", [(A, payload)])
    (row,) = dissected(tshark, path, ("seqno", "session_id"), "-o", "roqudp.big_endian:TRUE")
    assert (int(row["seqno"]), int(row["session_id"])) == (0x01020304, 0x0506)


def test_lost_numbers_are_told_by_line_and_by_all_lines(tshark: str, tmp_path: Path) -> None:
    # Around the wrap. Line A lacks two, B one of them and another; 2 comes late on B.
    numbers = [2**32 - 2, 2**32 - 1, 0, 1, 2, 3, 4]
    on_a = [number for number in numbers if number not in (2**32 - 1, 1)]
    on_b = [2**32 - 2, 2**32 - 1, 0, 3, 2, 4]
    sent = [(A, datagram(b"x", seqno=number)) for number in on_a]
    sent += [(B, datagram(b"x", seqno=number)) for number in on_b]
    path = capture(tmp_path / "lost.pcap", sent)
    fields = ("seqno", "lost.numbers", "line.lost.numbers", "copy_of", "duplicate")
    found = dissected(tshark, path, fields)
    lost = {row["seqno"]: row["lost.numbers"] for row in found if row["lost.numbers"]}
    assert lost == {"2": "1"}
    a, b = found[: len(on_a)], found[len(on_a) :]
    assert [row["line.lost.numbers"] for row in a] == ["", "4294967295", "1", "", ""]
    assert [row["line.lost.numbers"] for row in b] == ["", "", "", "1", "", ""]
    assert [row["copy_of"] for row in b] == ["1", "", "2", "4", "3", "5"]
    assert not any(row["duplicate"] for row in found)


def test_heartbeats_of_the_snapshot_channel_are_numbers_of_its_own(
    tshark: str, tmp_path: Path
) -> None:
    snapshot = datagrams(b"x", seqno=901, snapshot=True)
    sent = [(SNAPSHOT, *snapshot), (A, datagram(b"x", seqno=1))]
    sent += [(SNAPSHOT, datagram(seqno=902)), (A, datagram(b"x", seqno=2)), (A, datagram(seqno=3))]
    sent += [(SNAPSHOT, datagram(seqno=904))]
    path = capture(tmp_path / "channels.pcap", sent)
    found = dissected(tshark, path, ("seqno", "lost.numbers"))
    assert [row["lost.numbers"] for row in found] == ["", "", "", "", "", "903"]
    legacy = [(A, datagram(b"x", seqno=1)), (SNAPSHOT, datagram(b"x", seqno=901))]
    legacy += [(A, datagram(b"x", seqno=2)), (SNAPSHOT, datagram(b"x", seqno=902))]
    path = capture(tmp_path / "legacy.pcap", legacy)
    options = ("-o", "roqudp.legacy:TRUE", "-o", "roqudp.snapshot_ports:9002")
    found = dissected(tshark, path, ("seqno", "lost.numbers"), *options)
    assert not any(row["lost.numbers"] for row in found)


def test_message_of_fragments_is_lost_if_one_is(tshark: str, tmp_path: Path) -> None:
    first = datagrams(bytes(1200), seqno=1)
    second = datagrams(bytes(1200), seqno=2)
    sent = [(A, each) for each in (first[0], first[2], *second, datagram(b"x", seqno=3))]
    path = capture(tmp_path / "fragments.pcap", sent)
    fields = ("seqno", "fragments", "fragments.seen", "lost.numbers")
    found = dissected(tshark, path, fields)
    assert [row["fragments.seen"] for row in found] == ["2", "2", "3", "3", "3", "1"]
    assert [row["lost.numbers"] for row in found] == ["", "", "1", "", "", ""]


def test_late_message_of_fragments_is_lost_if_one_is(tshark: str, tmp_path: Path) -> None:
    late = datagrams(bytes(1200), seqno=2)
    sent = [(A, datagram(b"x", seqno=number)) for number in (1, 3)]
    sent += [(A, each) for each in (late[0], late[1], datagram(b"x", seqno=4))]
    sent += [(B, late[2]), (B, datagram(b"x", seqno=4))]
    path = capture(tmp_path / "late.pcap", sent)
    fields = ("fragments", "fragments.seen", "lost.numbers", "line.lost.numbers")
    found = dissected(tshark, path, fields)
    assert [row["fragments"] for row in found] == ["1", "1", "3", "3", "1", "3", "1"]
    assert [row["fragments.seen"] for row in found] == ["1", "1", "3", "3", "1", "3", "1"]
    assert [row["line.lost.numbers"] for row in found] == ["", "2", "", "", "", "", "2-3"]
    assert not any(row["lost.numbers"] for row in found)


@pytest.mark.parametrize(("kept", "known"), [(64, True), (44, True), (40, False)])
def test_datagram_that_the_capture_cut_is_as_long_as_it_was_sent(
    tshark: str, tmp_path: Path, kept: int, known: bool
) -> None:
    sent = [(A, datagram(b"x" * 40, seqno=1))]
    sent += [(A, each) for each in datagrams(bytes(1200), seqno=2)]
    sent += [(A, datagram(b"x" * 40, seqno=3))]
    path = capture(tmp_path / "cut.pcap", sent, kept)
    fields = ("seqno", "fragments.seen", "refused", "heartbeat", "lost.numbers", "cut")
    found = dissected(tshark, path, fields)
    assert [row["seqno"] for row in found] == (["1", "2", "2", "2", "3"] if known else [""] * 5)
    seen = [row["fragments.seen"] for row in found]
    assert seen == (["1", "3", "3", "3", "1"] if known else [""] * 5)
    assert all(bool(row["cut"]) is not known for row in found)
    assert not any(row["refused"] or row["heartbeat"] or row["lost.numbers"] for row in found)


def test_session_is_believed_with_its_second_datagram_in_a_row(tshark: str, tmp_path: Path) -> None:
    def of(session: int, seqno: int) -> tuple[int, bytes]:
        return A, datagram(b"x", session_id=session, seqno=seqno)

    sent = [of(7, 1), of(7, 2), of(9, 50), of(7, 3), of(8, 1), of(8, 2), of(8, 4)]
    path = capture(tmp_path / "sessions.pcap", sent)
    found = dissected(tshark, path, ("session.begins", "session.foreign", "lost.numbers"))
    assert [bool(row["session.begins"]) for row in found] == [1, 0, 0, 0, 1, 0, 0]
    assert [bool(row["session.foreign"]) for row in found] == [0, 0, 1, 0, 0, 0, 0]
    assert [row["lost.numbers"] for row in found] == ["", "", "", "", "", "", "3"]


def test_incremental_channel_that_begins_with_snapshots_is_not_the_snapshot_channel(
    tshark: str, tmp_path: Path
) -> None:
    # Both channels begin at 1. Number 2 of the one and 3 of the other are lost.
    sent = [(port, *datagrams(b"x", seqno=1, snapshot=True)) for port in (A, B, SNAPSHOT)]
    sent += [(SNAPSHOT, *datagrams(b"x", seqno=2, snapshot=True))]
    sent += [(port, datagram(b"x", seqno=3)) for port in (A, B)]
    sent += [(SNAPSHOT, *datagrams(b"x", seqno=4, snapshot=True))]
    path = capture(tmp_path / "channels.pcap", sent)
    found = dissected(tshark, path, ("port", "lost.numbers", "copy_of"))
    lost = [(row["port"], row["lost.numbers"]) for row in found if row["lost.numbers"]]
    assert lost == [(str(A), "2"), (str(SNAPSHOT), "3")]
    assert [row["copy_of"] for row in found] == ["", "1", "", "", "", "5", ""]


def test_snapshot_ports_alone_tell_the_channel_where_they_are_given(
    tshark: str, tmp_path: Path
) -> None:
    sent = [
        (port, *datagrams(b"x", seqno=seqno, snapshot=True))
        for seqno, ports in ((1, (A, SNAPSHOT)), (2, (A,)), (3, (A, SNAPSHOT)))
        for port in ports
    ]
    path = capture(tmp_path / "channels.pcap", sent)
    options = ("-o", f"roqudp.snapshot_ports:{SNAPSHOT}")
    found = dissected(tshark, path, ("lost.numbers", "copy_of"), *options)
    assert [tuple(row.values()) for row in found] == [("", "")] * 4 + [("2", "")]


def test_number_lost_between_heartbeats_is_told_before_any_payload(
    tshark: str, tmp_path: Path
) -> None:
    sent = [(A, datagram(seqno=1)), (A, datagram(seqno=3)), (A, datagram(b"x", seqno=5))]
    path = capture(tmp_path / "idle.pcap", sent)
    found = dissected(tshark, path, ("lost.numbers", "line.lost.numbers"))
    assert [tuple(row.values()) for row in found] == [("", ""), ("2", "2"), ("4", "4")]


def test_info_names_the_channel_of_a_heartbeat(tshark: str, tmp_path: Path) -> None:
    sent = [(SNAPSHOT, *datagrams(b"x", seqno=1, snapshot=True)), (SNAPSHOT, datagram(seqno=2))]
    sent += [(A, datagram(b"x", seqno=1)), (A, *datagrams(b"x", seqno=2, snapshot=True))]
    path = capture(tmp_path / "info.pcap", sent)
    command = [tshark, "-n", "-X", f"lua_script:{SCRIPT}", "-r", str(path), "-T", "fields"]
    command += ["-e", "_ws.col.Info"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    names = [line.partition(" session")[0] for line in result.stdout.splitlines()]
    assert names == ["Snapshot", "Snapshot", "Incremental", "Incremental (a snapshot)"]


def test_fragment_with_another_fragment_max_does_not_complete_the_message(
    tshark: str, tmp_path: Path
) -> None:
    whole = datagrams(bytes(1200), seqno=1)
    odd = datagram(b"x", seqno=1, fragment=1, fragment_max=1)
    sent = [(A, each) for each in (whole[0], odd, whole[2], datagram(b"x", seqno=2))]
    path = capture(tmp_path / "odd.pcap", sent)
    found = dissected(tshark, path, ("refused", "lost.numbers"))
    assert [bool(row["refused"]) for row in found] == [False, True, False, False]
    assert [row["lost.numbers"] for row in found] == ["", "", "", "1"]


def test_datagram_that_icmp_quotes_is_no_copy(tshark: str, tmp_path: Path) -> None:
    path = capture(tmp_path / "quoted.pcap", [(A, datagram(b"x", seqno=1))])
    original = path.read_bytes()[24 + 16 :]
    error = framed(1, struct.pack(">BBHI", 3, 3, 0, 0) + original)  # port unreachable
    with path.open("ab") as file:
        file.write(struct.pack("<IIII", 1, 0, len(error), len(error)) + error)
    found = dissected(tshark, path, ("seqno", "duplicate", "copy_of"))
    assert [tuple(row.values()) for row in found] == [("1", "", ""), ("1", "", "")]


def test_restart_with_the_same_id_begins_a_numbering(tshark: str, tmp_path: Path) -> None:
    # The second life lacks 2 on line A, which the first one lacked not, and 40 on both.
    sent = [(port, datagram(b"x", seqno=seqno)) for seqno in range(1, 60) for port in (A, B)]
    again = [(A, seqno) for seqno in range(1, 60) if seqno not in (2, 40)]
    again += [(B, seqno) for seqno in range(1, 60) if seqno != 40]
    sent += [(port, datagram(b"x", seqno=seqno)) for port, seqno in again]
    path = capture(tmp_path / "restart.pcap", sent)
    fields = ("port", "seqno", "lost.numbers", "line.lost.numbers", "session.begins", "duplicate")
    found = dissected(tshark, path, fields)
    begins = [(row["port"], row["seqno"]) for row in found if row["session.begins"]]
    assert begins == [(str(A), "1"), (str(B), "1")] * 2
    assert [row["lost.numbers"] for row in found if row["lost.numbers"]] == ["40"]
    lost = [(row["port"], row["line.lost.numbers"]) for row in found if row["line.lost.numbers"]]
    assert lost == [(str(A), "2"), (str(A), "40"), (str(B), "40")]
    assert not any(row["duplicate"] for row in found)


def test_lines_that_jump_one_after_the_other_share_a_numbering(tshark: str, tmp_path: Path) -> None:
    sent = [(port, datagram(b"x", seqno=10**6)) for port in (A, B)]
    sent += [(A, datagram(b"x", seqno=seqno)) for seqno in (1, 2)]
    sent += [(B, datagram(b"x", seqno=10**6 + 1)), (A, datagram(b"x", seqno=4))]
    sent += [(B, datagram(b"x", seqno=seqno)) for seqno in (1, 2, 3, 4)]
    path = capture(tmp_path / "jumps.pcap", sent)
    found = dissected(tshark, path, ("lost.numbers", "line.lost.numbers"))
    assert not any(row["lost.numbers"] for row in found)
    assert [row["line.lost.numbers"] for row in found if row["line.lost.numbers"]] == ["3"]


def test_capture_of_few_of_many_numbers_takes_little_memory(tshark: str, tmp_path: Path) -> None:
    step, count = 8000, 2000
    sent = [(A, datagram(b"x", seqno=number * step)) for number in range(count)]
    path = capture(tmp_path / "sampled.pcap", sent)
    limit = 1 << 30  # 16 million numbers were left behind
    command = [tshark, "-n", "-X", f"lua_script:{SCRIPT}", "-r", str(path), "-T", "fields"]
    result = subprocess.run(
        [*command, "-e", "roqudp.lost"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [str(step - 1)] * (count - 1)


def test_damaged_datagrams_are_shown_without_an_error_of_the_dissector(
    tshark: str, tmp_path: Path
) -> None:
    chance = random.Random(1)
    whole = json.loads(shared("wire", "golden", "payloads.json").read_text())["payloads"]
    payloads = [bytes.fromhex(each["hex"]) for each in whole]
    sent = []
    for _ in range(500):
        payload = bytearray(chance.choice(payloads)[:512] or bytes(8))
        for _ in range(chance.randrange(6)):
            payload[chance.randrange(len(payload))] = chance.randrange(256)
        header = bytearray(datagram(b"", seqno=chance.randrange(50)))
        for _ in range(chance.randrange(4)):
            header[chance.randrange(16)] = chance.randrange(256)
        size = chance.choice([1, 15, 16, 17, 24, 600, 2_000])
        sent.append((chance.choice([A, B, SNAPSHOT]), bytes(header + payload)[:size]))
    path = capture(tmp_path / "damaged.pcap", sent)
    command = [tshark, "-n", "-X", f"lua_script:{SCRIPT}", "-2", "-r", str(path), "-V"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "Lua" not in result.stdout + result.stderr
    assert result.stdout.count("Roq UDP") >= len(sent)


def test_jump_is_believed_with_its_second_datagram_in_a_row(tshark: str, tmp_path: Path) -> None:
    numbers = [1, 2, 10**9, 3, 5, 10**6, 10**6 + 2]
    path = capture(tmp_path / "jumps.pcap", [(A, datagram(b"x", seqno=each)) for each in numbers])
    found = dissected(tshark, path, ("session.begins", "session.foreign", "lost.numbers"))
    assert [bool(row["session.foreign"]) for row in found] == [0, 0, 1, 0, 0, 0, 0]
    assert [bool(row["session.begins"]) for row in found] == [1, 0, 0, 0, 0, 1, 0]
    assert [row["lost.numbers"] for row in found] == ["", "", "", "", "4", "", "1000001"]


def life(
    chance: random.Random, session: int, first: int, start_s: float
) -> tuple[list[tuple[float, int, bytes]], list[str]]:
    """Return what both lines of a session bring, with times, and the numbers that both lose.

    The first and the last messages come whole: what is before or behind is no loss.
    """
    brought, lost = [], []
    skews = {port: chance.uniform(0, 10) for port in (A, B)}
    for index in range(150):
        size = chance.choice([0, 40, 512, 1200])
        fragments = datagrams(
            bytes(size), seqno=first + index, session_id=session, snapshot=size > 0 and index < 9
        )
        edge = index < 3 or index == 149
        seen = set()
        for port, skew_s in skews.items():
            for part, fragment in enumerate(fragments):
                if edge or chance.random() > 0.15:
                    seen.add(part)
                    late_s = 0 if edge else chance.uniform(0, 3)
                    brought.append((start_s + index + skew_s + late_s, port, fragment))
        if len(seen) < len(fragments):
            lost.append(str((first + index) % 2**32))
    return brought, lost


def single(spans: Iterator[str]) -> list[str]:
    """Return the numbers of spans ("5-7, 9"), one by one, across the wrap."""
    found = []
    for span in spans:
        for part in span.split(", "):
            first, _, last = part.partition("-")
            count = (int(last or first) - int(first)) % 2**32 + 1
            found += [str((int(first) + step) % 2**32) for step in range(count)]
    return found


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("restart", ["another id", "the same id, far", "the same id, near"])
def test_lost_numbers_of_random_lives_are_those_that_no_line_brought(
    tshark: str, tmp_path: Path, seed: int, restart: str
) -> None:
    chance = random.Random(seed)
    brought, lost = [], []
    first = chance.choice([1, 2**31 - 50, 2**32 - 50])
    for number in range(3):
        session = 7 + number if restart == "another id" else 7
        more, more_lost = life(chance, session, first, start_s=number * 200)
        brought += more
        lost += more_lost
        first += 10**6 if restart == "the same id, far" else 0
    brought.sort(key=lambda each: each[0])
    path = capture(tmp_path / "lives.pcap", [(port, each) for _, port, each in brought])
    found = dissected(tshark, path, ("lost.numbers",))
    told = single(row["lost.numbers"] for row in found if row["lost.numbers"])
    assert sorted(told) == sorted(lost)


def test_dissector_knows_the_messages_of_the_schema() -> None:
    text = SCRIPT.read_text().partition("local MESSAGES = {")[2].partition("}")[0]
    assert [name.strip().strip('"') for name in text.split(",") if name.strip()] == list(
        MESSAGES[1:]
    )


@pytest.mark.nightly  # five seconds; tests above have each kind of loss
def test_capture_of_a_market_has_lost_what_is_known_of_it(tshark: str, tmp_path: Path) -> None:
    expected = json.loads(shared("wire", "capture", "expected.json").read_text())["rough"]
    frames = 20_000  # of 74,023: over the wrap
    path = tmp_path / "rough.pcap"
    with gzip.open(shared("wire", "capture", "roq_udp_rough.pcap.gz")) as file:
        path.write_bytes(file.read(frames * 600))
    fields = ("port", "seqno", "lost.numbers", "message")
    found = dissected(tshark, path, fields, "-c", str(frames))
    own = [row for row in found if row["port"] in (str(A), str(B)) and row["seqno"]]
    lost = [row["lost.numbers"] for row in own if row["lost.numbers"]]
    newest = max(int(row["seqno"]) for row in own if int(row["seqno"]) < 2**31)
    gaps = [
        f"{gap['first']}-{gap['last']}" if gap["count"] > 1 else str(gap["first"])
        for gap in expected["gaps_over_both_lines"]
        if gap["first"] > 2**31 or gap["last"] < newest
    ]
    assert len(gaps) > 4
    assert lost == gaps
    assert {"MarketByPriceUpdate", "TradeSummary", "TopOfBook"} <= {row["message"] for row in own}

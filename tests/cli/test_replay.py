"""`udpfast replay` of captures whose frames are not all whole: each kind is said, and missed."""

import json

import pytest
from click.testing import CliRunner

from lab import frames
from tests.net.test_pcap import enhanced as frame_block
from tests.net.test_pcap import ethernet, interface, ipv4, pcap, section, udp
from udpfast.cli.main import cli
from udpfast.core.layout import Kind
from udpfast.log.journal import Journal
from udpfast.market.updates import LAYOUTS

WHOLE = [ethernet(ipv4(udp(frames.datagram(b"x" * 100, seqno=i)))) for i in range(1, 21)]
PORT = int.from_bytes(udp(b"")[2:4], "big")
CUT = "frames cut short by the capture (snaplen): not read"
MALFORMED = "frames with headers that contradict each other: not read"
UNKNOWN = "frames of a link type that udpfast does not read: not read"


def replay(path, *arguments):
    """Return the exit code and the output."""
    found = CliRunner().invoke(cli, ["replay", str(path), "--incremental", str(PORT), *arguments])
    return found.exit_code, found.stdout


def cut(every):
    """Return a capture of which every so manieth frame is cut short."""
    return b"".join(
        [pcap([])]
        + [
            pcap([(i, frame)], kept=60 if i % every == 0 else 1 << 20)[24:]
            for i, frame in enumerate(WHOLE)
        ]
    )


def several_links():
    """Return a capture with frames of a link that is read, and of one that is not."""
    blocks = [section(), interface(), interface(link_type=105)]
    blocks += [frame_block(frame, i, number=i % 4 == 0) for i, frame in enumerate(WHOLE)]
    return b"".join(blocks)


@pytest.mark.parametrize(
    ("content", "missed", "words"),
    [
        (cut(4), 5, CUT),
        (cut(1), 20, CUT),
        (pcap([(i, f) for i, f in enumerate([*WHOLE, b"short", b""])]), 2, MALFORMED),
        (several_links(), 5, UNKNOWN),
    ],
    ids=["some cut", "all cut", "malformed", "links"],
)
def test_replay_of_frames_that_are_not_whole_says_and_counts_them(tmp_path, content, missed, words):
    path = tmp_path / "a.pcapng"
    path.write_bytes(content)
    code, text = replay(path)
    assert code == 1
    assert f"{missed} {words}" in text
    code, text = replay(path, "--json")
    assert (code, json.loads(text.splitlines()[-1])["missed"]) == (1, missed)


def test_replay_of_whole_frames_misses_none(tmp_path):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(list(enumerate(WHOLE)), nanoseconds=True))
    code, text = replay(path)
    assert (code, "missed" in text) == (0, False)


def test_replay_of_a_journal_without_its_end_counts_records_and_missing_ones(tmp_path):
    with Journal.open(tmp_path / "journal", LAYOUTS, segment_bytes=1 << 18) as journal:
        for _ in range(600):
            journal.append(Kind.MESSAGE, bytes(1000))
    (tmp_path / "journal" / "00000003.segment").unlink()
    found = CliRunner().invoke(cli, ["replay", str(tmp_path / "journal"), "--json"])
    result = json.loads(found.stdout.splitlines()[-1])
    assert found.exit_code == 1 and result["missed"] > 0
    assert result["kinds"] == {"MESSAGE": result["records"]}
    assert result["records"] + result["missed"] == 600


def group(last, seqnos):
    """Return frames to a group, 239.0.0.`last`, at the port that they all have."""
    frames_of = [ethernet(ipv4(udp(frames.datagram(b"%d" % last, seqno=n)))) for n in seqnos]
    return [(n, each[:30] + bytes((239, 0, 0, last)) + each[34:])
            for n, each in zip(seqnos, frames_of, strict=True)]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "brought", "lost"),
    [
        (["239.0.0.1:{port}"], [20], 0),
        (["239.0.0.2:{port}"], [15], 5),
        (["239.0.0.2:{port}", "239.0.0.1:{port}"], [15, 20], 0),
        (["239.0.0.3:{port}"], [0], 0),
    ],
)
def test_replay_takes_the_lines_of_one_port_by_their_addresses(tmp_path, lines, brought, lost):
    path = tmp_path / "a.pcap"
    both = [*group(2, [n for n in range(1, 21) if not 6 <= n <= 10]), *group(1, range(1, 21))]
    path.write_bytes(pcap(sorted(both, key=lambda each: each[0]), nanoseconds=True))
    chosen = [word for line in lines for word in ("--incremental", line.format(port=PORT))]
    found = CliRunner().invoke(cli, ["replay", str(path), *chosen, "--json"])
    result = json.loads(found.stdout.splitlines()[-1])
    by_line = [each["datagrams"] for each in result["ledger"]["lines"].values()]
    assert (by_line, result["capture"]["other_datagrams"]) == (brought, 35 - sum(brought))
    assert sum(gap["count"] for gap in result["gaps"]) == lost


@pytest.mark.parametrize("wrong", ["239.0.0:1", "239.0.0.1:", "239.0.0.1:70000", "[::1:5", "x:1"])
def test_replay_refuses_a_line_that_is_no_address(tmp_path, wrong):
    path = tmp_path / "a.pcap"
    path.write_bytes(pcap(list(enumerate(WHOLE)), nanoseconds=True))
    found = CliRunner().invoke(cli, ["replay", str(path), "--incremental", wrong])
    assert found.exit_code == 2 and f"expected a port, or IP:PORT, found '{wrong}'" in found.output

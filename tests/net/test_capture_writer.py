"""Written captures: our reader and tshark read them back, including the loop's own clocks."""

import gzip
import itertools
import shutil
import subprocess

import numpy as np
import pytest

from tests.shared import shared
from udpfast.net.capture_writer import CaptureWriter
from udpfast.net.pcap import CAPTURED, CaptureBatch, CaptureEvent, CaptureReader

STAMP = 1_723_161_256_378_345_766
V4 = b"\0" * 10 + b"\xff\xff" + bytes([10, 0, 0, 1])
GROUP = b"\0" * 10 + b"\xff\xff" + bytes([239, 1, 2, 3])
V6 = bytes.fromhex("fd000000000000000000000000000007")


def batch_of(payloads, source=V4, destination=GROUP):
    """Return datagrams to ports from 9001 on, one per microsecond and a nanosecond."""
    headers = np.zeros(len(payloads), CAPTURED)
    sizes = [len(payload) for payload in payloads]
    headers["timestamp_ns"] = STAMP + np.arange(len(payloads)) * 1001
    headers["source"], headers["destination"] = (
        np.frombuffer(address, "u1") for address in (source, destination)
    )
    headers["source_port"] = 40_000
    headers["destination_port"] = 9001 + np.arange(len(payloads))
    headers["offset"] = np.cumsum([0, *sizes[:-1]])
    headers["size"] = sizes
    return CaptureBatch(headers, b"".join(payloads))


def read(path, events=False):
    """Return headers and payloads of all entries of a file."""
    headers, payloads = [], []
    with CaptureReader(path, events=events) as reader:
        while (batch := reader.read_batch()) is not None:
            headers.append(batch.headers.copy())
            payloads += [bytes(batch.payload(i)) for i in range(len(batch.headers))]
        assert reader.damage is None
    return np.concatenate(headers), payloads


PAYLOADS = [b"", b"odd", bytes(range(256)), b"x" * 65_507, b"last"]
FORMS = list(
    itertools.product(
        ("a.pcap", "a.pcapng", "a.pcap.gz", "a.pcapng.gz"),
        (True, False),
        ("little", "big"),
        (None, 7),
        (V4, V6),
    )
)


@pytest.mark.parametrize(("name", "nanoseconds", "byteorder", "vlan", "source"), FORMS)
def test_capture_written_is_read_back(tmp_path, name, nanoseconds, byteorder, vlan, source):
    batch = batch_of(PAYLOADS, source, GROUP if source == V4 else V6)
    options = {"nanoseconds": nanoseconds, "byteorder": byteorder, "vlan": vlan}
    with CaptureWriter(tmp_path / name, **options) as writer:
        assert writer.write(batch) == writer.frames == len(PAYLOADS)
    headers, payloads = read(tmp_path / name)
    assert payloads == PAYLOADS
    for field in ("source", "destination", "source_port", "destination_port", "size"):
        assert (headers[field] == batch.headers[field]).all()
    stamps = batch.headers["timestamp_ns"]
    expected = stamps if nanoseconds else stamps // 1000 * 1000
    assert (headers["timestamp_ns"] == expected).all()
    assert (headers["event"] == CaptureEvent.FOREIGN).all()


@pytest.mark.parametrize("byteorder", ["little", "big"])
def test_pcapng_keeps_what_the_loop_knew(tmp_path, byteorder):
    batch = batch_of([b"one", b"", b"two", b"", b""])
    own = batch.headers
    own["event"] = [1, CaptureEvent.EXPIRE, 1, CaptureEvent.RESTART, CaptureEvent.FINISH]
    own["now_ns"], own["unix_ns"] = np.arange(5) * 10**12 + 7, own["timestamp_ns"] + 5
    own["flags"], own["channel"], own["line"] = [0, 0, 3, 0, 0], [0, 0, 1, 0, 0], [0, 0, 2, 0, 0]
    with CaptureWriter(tmp_path / "a.pcapng", byteorder=byteorder) as writer:
        assert writer.write(batch) == 2
    headers, payloads = read(tmp_path / "a.pcapng", events=True)
    assert [payload for payload in payloads if payload] == [b"one", b"two"]
    for field in ("event", "now_ns", "unix_ns", "flags", "channel", "line"):
        assert (headers[field] == own[field]).all(), field
    headers, payloads = read(tmp_path / "a.pcapng")
    assert payloads == [b"one", b"two"] and list(headers["frame"]) == [0, 1]


def test_capture_writer_refuses_what_it_cannot_write(tmp_path):
    with pytest.raises(ValueError, match="byteorder"):
        CaptureWriter(tmp_path / "a.pcap", byteorder="middle")
    with pytest.raises(ValueError, match="vlan"):
        CaptureWriter(tmp_path / "a.pcap", vlan=4095)
    with CaptureWriter(tmp_path / "a.pcap") as writer:
        outside = batch_of([b"12345"])
        outside.headers["offset"] = 3
        with pytest.raises(ValueError, match="inside the buffer"):
            writer.write(outside)
        with pytest.raises(ValueError, match="65507"):
            writer.write(batch_of([bytes(65_508)]))


@pytest.mark.parametrize("name", ["a.pcap", "a.pcapng"])
@pytest.mark.parametrize("vlan", [None, 7])
def test_tshark_opens_what_was_written(tmp_path, name, vlan):
    tshark = shutil.which("tshark")
    if tshark is None:
        pytest.skip("tshark is not installed")
    batch = batch_of([b"", b"odd", bytes(range(256))])
    if name == "a.pcapng":
        batch.headers["event"] = [1, CaptureEvent.EXPIRE, 1]
    datagrams = np.flatnonzero(batch.headers["event"] < CaptureEvent.EXPIRE)
    with CaptureWriter(tmp_path / name, vlan=vlan) as writer:
        writer.write(batch)
    fields = ("frame.time_epoch", "ip.dst", "udp.dstport", "udp.length", "vlan.id")
    found = subprocess.run(
        [tshark, "-r", str(tmp_path / name), "-o", "udp.check_checksum:TRUE", "-o"]
        + ["ip.check_checksum:TRUE", "-T", "fields", "-e", "ip.checksum.status"]
        + ["-e", "udp.checksum.status"]
        + [word for field in fields for word in ("-e", field)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    assert [line.split("\t") for line in found] == [
        ["1", "1", f"{stamp // 10**9}.{stamp % 10**9:09}", "239.1.2.3", str(port), str(size + 8)]
        + [str(vlan or "")]
        for stamp, port, size in batch.headers[["timestamp_ns", "destination_port", "size"]][
            datagrams
        ].tolist()
    ]


def test_real_capture_written_again_has_the_same_datagrams(tmp_path):
    path = shared("wire", "capture", "roq_udp_rough.pcap.gz")
    with CaptureReader(path) as reader, CaptureWriter(tmp_path / "a.pcapng") as writer:
        batch = reader.read_batch(20_000)
        writer.write(batch)
    headers, payloads = read(tmp_path / "a.pcapng")
    assert payloads == [bytes(batch.payload(i)) for i in range(len(batch.headers))]
    assert (headers["timestamp_ns"] == batch.headers["timestamp_ns"]).all()


def test_gzip_capture_is_gzip(tmp_path):
    with CaptureWriter(tmp_path / "a.pcap.gz") as writer:
        writer.write(batch_of([b"x"]))
    assert gzip.decompress((tmp_path / "a.pcap.gz").read_bytes())[:4] == b"\x4d\x3c\xb2\xa1"

"""A stream's reader as Spark drives it, without Spark: what its offsets say of records removed."""

from pathlib import Path

import pytest

from tests.export.capture import append, open_raw
from udpfast.errors import FormatError
from udpfast.export.scan import Scan

COUNT = 2_000
STEP_NS = 20_000_000


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """Return a journal whose raw capture lost its oldest segment to make room."""
    datagrams = [(n, n * STEP_NS, n * STEP_NS) for n in range(COUNT)]
    with open_raw(tmp_path / "journal") as raw:
        append(raw, datagrams[: COUNT // 2])
    with open_raw(tmp_path / "journal") as raw:
        assert raw.remove_oldest()
        append(raw, datagrams[COUNT // 2 :])
    return tmp_path / "journal"


@pytest.mark.parametrize("max_records", [None, 1])
def test_stream_of_races_goes_on_behind_what_was_removed(
    journal: Path, max_records: int | None
) -> None:
    from udpfast.spark.stream import JournalStreamReader

    def reader(skip_loss: bool) -> JournalStreamReader:
        scan = Scan(str(journal), "races", columns=("number",))
        return JournalStreamReader(
            scan, first="begin", max_records=max_records, skip_loss=skip_loss
        )

    stream = reader(skip_loss=True)
    first = {**stream.initialOffset(), "position": 0, "index": 0}
    offset, seqnos = first, []
    while True:
        end = stream.latestOffset(offset, stream.getDefaultReadLimit())
        if end == offset:
            break
        for partition in stream.partitions(offset, end):
            for batch in stream.read(partition):
                seqnos += batch.column("number").to_pylist()
        offset = end
    assert seqnos == list(range(COUNT - len(seqnos), COUNT)) and 0 < len(seqnos) < COUNT
    strict = reader(skip_loss=False)
    end = strict.latestOffset(first, strict.getDefaultReadLimit())
    with pytest.raises(FormatError, match="were removed before they were read"):
        strict.partitions(first, end)

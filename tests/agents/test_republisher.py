"""A journal whose records go by two tables of names, once more as a ring."""

from tests.agents.test_recorder import drive, recorder_of
from tests.client.instance import Instance
from udpfast.agents.feed.republisher import Republisher
from udpfast.client.reader import Reader
from udpfast.core.layout import Kind
from udpfast.log.journal_cursor import JournalCursor
from udpfast.market.updates import LAYOUTS


def test_republished_names_are_there_before_the_restart_that_says_so(tmp_path):
    for symbol in ("OLD", "NEW"):
        instance = Instance(tmp_path / "feed", 1 << 22)
        instance.top(1, 2, symbol=symbol)
        recorder = recorder_of(instance, tmp_path)
        drive(recorder)
        recorder.on_stop()
        instance.close()
    again = tmp_path / "again"
    again.mkdir(mode=0o700)
    republisher = Republisher(again, 1 << 20)
    found = []
    with (
        Reader(f"ring:{again}") as reader,
        JournalCursor.attach(tmp_path / "journal", follow=False, layouts=LAYOUTS) as cursor,
    ):
        while not cursor.ended:
            republisher.take(cursor, 0, cursor.poll())
            found += [record.symbol or record.kind for record in iter_now(reader)]
        republisher.close()
    assert found == ["OLD", Kind.RESTART, "NEW"]


def iter_now(reader):
    """Yield the records that are there."""
    while reader.wait(timeout=0.05):
        yield next(reader)

"""A journal as another version would have written it: the same records, in other layouts."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from udpfast.archive.names import names_path
from udpfast.core.layout import RECORD
from udpfast.core.layouts import Layouts
from udpfast.log.journal import Journal
from udpfast.log.journal_cursor import JournalCursor
from udpfast.log.translation import Translation

__all__ = ["write_aged"]

_BATCH = 256
_ROOM = 1 << 22


def write_aged(source: Path, directory: Path, own: Layouts, layouts: Layouts) -> None:
    """Write the records of a journal into a new one, in the layouts of another version.

    Parameters
    ----------
    source : Path
        A journal of this version, whose records go by one file of names, if by any.
    directory : Path
        Of the new one.
    own, layouts : Layouts
        Of the two.
    """
    translation = Translation(own, layouts)
    into = (
        np.zeros(_BATCH, layouts.header),
        np.zeros(_BATCH, np.uint64),
        np.zeros(_ROOM, np.uint8),
    )
    with (
        JournalCursor.attach(source, follow=False, limit=_BATCH) as cursor,
        Journal.open(directory, layouts, name="feed", segment_bytes=1 << 18) as journal,
    ):
        while count := cursor.poll():
            done = translation.run(cursor.headers[:count], cursor.offsets, cursor.payloads, into)
            assert done == count
            if not journal.opened and cursor.names:
                shutil.copy2(names_path(source, cursor.names), directory)
                journal.prepare()
                journal.roll(0, cursor.names, names_mark=cursor.names_mark)
            for header, offset in zip(into[0][:count], into[1].tolist(), strict=False):
                content = header.tobytes()
                content += into[2][offset : offset + int(header["length"]) - len(content)].tobytes()
                # The same bytes, as this version calls them: what its header has no room for, a
                # larger one's end, lies where the payload begins.
                same = np.frombuffer(content, RECORD, 1)[0]
                journal.append(
                    int(same["kind"]),
                    content[RECORD.itemsize :],
                    *(int(same[name]) for name in ("flags", "received_ns", "published_ns")),
                    **{
                        name: int(same[name])
                        for name in ("line", "number", "object", "flight_ns", "stream", "session")
                    },
                )

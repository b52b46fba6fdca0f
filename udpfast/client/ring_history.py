"""Find the journal that keeps the records of a ring, so that both can be read as one stream."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from udpfast.archive.feed_settings import noted_journal
from udpfast.client.appearing import when_there
from udpfast.client.history_source import HistorySource
from udpfast.errors import (
    ConfigError,
    FormatError,
    NotReadyError,
    RegionError,
    UdpfastError,
    sentence,
)
from udpfast.log.journal_place import logs_of, segments_of
from udpfast.log.journal_state import journal_state
from udpfast.log.segment import Segment, list_segments, segment_path
from udpfast.shm.instance import journal_directory

if TYPE_CHECKING:
    from udpfast.client.ring_source import RingSource

__all__ = ["is_history_of", "open_own_history"]


def is_history_of(directory: Path, live: RingSource) -> bool:
    """Return whether a journal is the one that keeps a ring's records.

    It is if its latest records are of the ring's log; or if the ring's recorder writes it, but has
    not noticed yet that the ring began anew.

    Raises
    ------
    NotReadyError
        The journal is new, and its writer has not stated yet whose records it will contain.
    RegionError
        The journal has records of the ring's log, but its file `journal` is lost or damaged.
    """
    try:
        state = journal_state(directory)
    except (FileNotFoundError, FormatError, RegionError) as error:
        if not _has_log(directory, live.log):
            return False
        # Where it continues in the ring is not known, and two feeds would give its records twice.
        raise RegionError(
            f"{directory}: expected the file `journal` beside the ring's records, found "
            f"{sentence(error)}: `udpfast verify {directory} --repair` makes it anew"
        ) from error
    if state.source == live.log:
        return True
    if not any(state.source) and logs_of(directory)[-1:] == [live.log]:  # `journal` was made anew
        return True
    instance = live.directory
    assert instance is not None  # rings are local
    numbers = list_segments(directory)
    if Path(directory) not in _journals_of(instance):
        if state.alive and not any(state.source) and not numbers:
            raise NotReadyError(
                f"{directory}: expected a journal whose writer says which records it gets, found "
                "one that was just begun: try again in a moment"
            )
        return False
    if segments_of(directory, live.log):
        return False
    if not numbers:
        return True
    for number in reversed(numbers):
        with contextlib.suppress(FileNotFoundError, RegionError):  # damaged
            last = Segment.open(segment_path(directory, number))
            return last.info().name == instance.name
    return False


def open_own_history(
    live: RingSource,
    start_ns: int,
    batch: int,
    buffer_bytes: int | None,
    address: str,
    deadline_s: float,
) -> HistorySource:
    """Return a source that reads a ring's journal first, and then the ring.

    Parameters
    ----------
    live : RingSource
        The ring.
    start_ns : int
        Begin with the first record that was published then or later, UNIX ns.
    batch, buffer_bytes
        As for `Reader`.
    address : str
        Address of the ring.
    deadline_s : float
        How long to wait for the journal to appear, by `time.monotonic`.

    Raises
    ------
    ConfigError
        No journal keeps the ring's records.
    """
    directory = when_there(lambda: _own_journal(live, address), deadline_s, (ConfigError,))
    return HistorySource(
        directory,
        ("time", start_ns),
        live,
        (f"journal:{directory}", address),
        batch=batch,
        buffer_bytes=buffer_bytes,
    )


def _has_log(directory: Path, log: bytes) -> bool:
    with contextlib.suppress(FileNotFoundError, FormatError):
        return log in logs_of(directory)
    return False


def _own_journal(live: RingSource, address: str) -> Path:
    assert live.directory is not None  # rings are local
    looked = _journals_of(live.directory)
    for directory in looked:
        if is_history_of(directory, live):
            return directory
    raise ConfigError(
        f"start must be 'tail', 'begin' or 'oldest' for {address}, because no journal has "
        f"its records (looked at {', '.join(map(str, looked)) or 'none'})"
    )


def _journals_of(instance: Path) -> list[Path]:
    # The journal that the instance's recorder writes, then the journal of the instance's name.
    noted = noted_journal(instance)
    found = [] if noted is None else [noted]
    with contextlib.suppress(OSError, UdpfastError):
        found.append(journal_directory(instance.name))
    return found

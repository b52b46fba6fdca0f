"""The note that a replay leaves beside its ring: what it replays, and how far it has come."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from udpfast.errors import FormatError
from udpfast.shm.files import replace_file

__all__ = ["Replay", "read_replay", "write_replay"]

_NAME = "replay.json"


class Replay(msgspec.Struct, frozen=True):
    """A replay into a ring, as its last note describes it.

    Attributes
    ----------
    source : str
        The journal or the capture that is replayed.
    log : str
        Id of the log in the ring, 32 hexadecimal digits.
    epoch : int
        Epoch of the ring that this replay writes. A ring with another epoch has another writer.
    counted : bool
        True: the replay runs the engine, which counts as it does for a live feed. False: records
        are copied as they are.
    speed : float
        Multiple of the recorded pace; 0: as fast as possible.
    first_ns, last_ns : int
        Times of the first and the last record or datagram of the source, UNIX ns; 0: unknown.
    at_ns : int
        Time of the record or datagram that the replay has reached, UNIX ns; 0: none yet.
    """

    source: str
    log: str
    epoch: int
    counted: bool
    speed: float
    first_ns: int = 0
    last_ns: int = 0
    at_ns: int = 0

    @property
    def done(self) -> float | None:
        """Share of the recorded time that has been replayed, 0 to 1; None: unknown."""
        span_ns = self.last_ns - self.first_ns
        # If a journal lacks its first records, nobody knows when they were recorded.
        if self.first_ns <= 0 or span_ns <= 0 or not self.at_ns:
            return None
        return min(max((self.at_ns - self.first_ns) / span_ns, 0.0), 1.0)

    @property
    def text(self) -> str:
        """The progress in words: the recorded time that is reached, and its share of the whole."""
        if not self.at_ns:
            return "nothing replayed yet"
        at = datetime.fromtimestamp(self.at_ns // 1_000_000_000, UTC)
        part = "" if self.done is None else f", {int(100 * self.done)} %"
        return f"at {at:%Y-%m-%dT%H:%M:%SZ}{part}"


def write_replay(replay: Replay, directory: Path) -> None:
    """Write the note of a replay into the directory of its ring."""
    replace_file(directory / _NAME, msgspec.json.encode(replay))


def read_replay(directory: Path, log: bytes, epoch: int) -> Replay | None:
    """Return the note of the replay that writes, or wrote, a ring.

    Parameters
    ----------
    directory : Path
        Directory of the ring.
    log, epoch : bytes, int
        Id of the log in the ring, and the epoch of its writer.

    Returns
    -------
    Replay or None
        None: there is no note, or it is of another log or another writer.

    Raises
    ------
    FormatError
        The file is damaged, or of another version.
    """
    path = directory / _NAME
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Replay)
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise FormatError(f"{path}: expected the note of a replay: {error}") from None
    return found if (found.log, found.epoch) == (log.hex(), epoch) else None

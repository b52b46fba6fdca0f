"""What a replay says of itself beside the ring that it writes: its source, and how far it is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from udpfast.errors import FormatError
from udpfast.shm.files import replace_file

__all__ = ["Replay", "read_replay", "write_replay"]

_NAME = "replay.json"


class Replay(msgspec.Struct, frozen=True):
    """A replay into a ring, as it described itself last.

    Attributes
    ----------
    source : str
        The journal or capture.
    log : str
        Log of the ring, 32 hexadecimal digits.
    epoch : int
        Which writer of that log it is: what another one writes is not this replay's.
    counted : bool
        It goes through the engine, which counts as a feed's does; otherwise records are copied.
    speed : float
        Times the recorded pace; 0: as fast as possible.
    first_ns, last_ns : int
        Times of the first and the last record or datagram of the source, UNIX ns; 0: unknown.
    at_ns : int
        Time of the one that it has reached, UNIX ns; 0: none yet.
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
        """Which part of the recorded time it has replayed, 0 to 1; None: unknown."""
        span_ns = self.last_ns - self.first_ns
        # A journal that lacks records does not know how early those were.
        if self.first_ns <= 0 or span_ns <= 0 or not self.at_ns:
            return None
        return min(max((self.at_ns - self.first_ns) / span_ns, 0.0), 1.0)

    @property
    def text(self) -> str:
        """In words: the recorded time that it has reached, and which part of it all."""
        if not self.at_ns:
            return "nothing replayed yet"
        at = datetime.fromtimestamp(self.at_ns // 1_000_000_000, UTC)
        part = "" if self.done is None else f", {int(100 * self.done)} %"
        return f"at {at:%Y-%m-%dT%H:%M:%SZ}{part}"


def write_replay(replay: Replay, directory: Path) -> None:
    """Write what a replay says of itself into the directory of its ring."""
    replace_file(directory / _NAME, msgspec.json.encode(replay))


def read_replay(directory: Path, log: bytes, epoch: int) -> Replay | None:
    """Return the replay that writes, or wrote, a ring.

    Parameters
    ----------
    directory : Path
        Of the ring.
    log, epoch : bytes, int
        The ring's: which log it is of, and which writer of that it has.

    Returns
    -------
    Replay or None
        None: that writer is no replay.

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
        raise FormatError(f"{path}: expected what a replay says of itself: {error}") from None
    return found if (found.log, found.epoch) == (log.hex(), epoch) else None

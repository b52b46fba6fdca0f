"""The object rules of the protocol's description, to the letter: slow, obvious, for comparison.

The branches have names: I1..I4 for a message of the incremental channel, S1..S5 for one of the
snapshot channel. Two known weaknesses are kept: a snapshot never sets `ready`, and so it is
included again and again (docs/protocol.md says what market/gate does instead).
"""

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Decision", "PseudocodeObjects"]


class Decision(NamedTuple):
    """What was decided: the branch, whether to use a snapshot (None: incremental), the state."""

    branch: str
    include: bool | None
    ready: bool
    last_seqno: int | None


@dataclass(slots=True)
class _State:
    ready: bool = False
    last_seqno: int | None = None


class PseudocodeObjects:
    """States by (object_type, object_id) of one session."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        self._states: dict[tuple[int, int], _State] = {}

    def admit(
        self,
        channel: str,
        object_type: int,
        object_id: int,
        snapshot: bool,
        seqno: int,
        last_seqno: int,
    ) -> Decision:
        """Take one message in.

        Parameters
        ----------
        channel : str
            "incremental" or "snapshot".
        object_type, object_id, snapshot, seqno, last_seqno
            Of its frame.
        """
        state = self._states.setdefault((object_type, object_id), _State())
        if channel == "snapshot":
            branch, include = _snapshot(state, object_type, last_seqno)
            if include:
                state.last_seqno = last_seqno
            return Decision(branch, include, state.ready, state.last_seqno)
        branch = _incremental(state, snapshot, seqno)
        return Decision(branch, None, state.ready, state.last_seqno)


def _incremental(state: _State, snapshot: bool, seqno: int) -> str:
    if state.ready:
        state.last_seqno = seqno
        return "I1"
    if snapshot:
        state.ready = True
        state.last_seqno = seqno
        return "I2"
    if state.last_seqno is None:
        state.last_seqno = seqno
        return "I3"
    return "I4"


def _snapshot(state: _State, object_type: int, last_seqno: int) -> tuple[str, bool]:
    if object_type == 0:
        return "S1", True
    if state.ready:
        return "S2", False
    if state.last_seqno is None:
        return "S5", True
    # The description writes <=; on the circle of 32 bits that is "at or before".
    if (last_seqno - state.last_seqno) & 0xFFFFFFFF < 0x80000000:
        return "S3", True
    return "S4", False

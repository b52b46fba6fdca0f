import enum

import numpy as np
from numpy.typing import NDArray

from udpfast.bus.log import Store

__all__ = ["Sequencer", "SequencerVerdict"]

class SequencerVerdict(enum.IntEnum):
    ACCEPTED = 0
    DUPLICATE = 1
    EARLY = 2
    UNKNOWN = 3
    FENCED = 4
    MALFORMED = 5
    UNAUTHENTIC = 6
    FULL = 7

class Sequencer:
    def __init__(self, store: Store, epoch: int, now_ns: int, unix_ns: int) -> None: ...
    @property
    def store(self) -> Store: ...
    @property
    def count(self) -> int: ...
    @property
    def received(self) -> int: ...
    @property
    def held(self) -> int: ...
    @property
    def refused_names(self) -> int: ...
    @property
    def full(self) -> bool: ...
    @property
    def verdicts(self) -> dict[SequencerVerdict, int]: ...
    @property
    def clock_steps(self) -> int: ...
    def known(self) -> NDArray[np.void]: ...
    def make_room(self) -> bool: ...
    def receive(self, data: bytes, now_ns: int, unix_ns: int) -> bytes: ...

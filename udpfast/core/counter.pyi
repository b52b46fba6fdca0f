from typing import NamedTuple

__all__ = [
    "ADDRESS_COUNTERS",
    "CHANNEL_COUNTERS",
    "FEED_COUNTERS",
    "LINE_COUNTERS",
    "VERDICTS",
    "CounterInfo",
]

class CounterInfo(NamedTuple):
    name: str
    unit: str
    meaning: str

ADDRESS_COUNTERS: tuple[CounterInfo, ...]
VERDICTS: tuple[CounterInfo, ...]
LINE_COUNTERS: tuple[CounterInfo, ...]
CHANNEL_COUNTERS: tuple[CounterInfo, ...]
FEED_COUNTERS: tuple[CounterInfo, ...]

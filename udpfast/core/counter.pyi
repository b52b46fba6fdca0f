from typing import NamedTuple

__all__ = [
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

VERDICTS: tuple[CounterInfo, ...]
LINE_COUNTERS: tuple[CounterInfo, ...]
CHANNEL_COUNTERS: tuple[CounterInfo, ...]
FEED_COUNTERS: tuple[CounterInfo, ...]

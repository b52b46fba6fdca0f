"""Messages of no venue through the decoders of all: none may read behind its message.

A page that nobody may read lies right behind every message: a step beyond it ends the process.
"""

import random
from functools import cache

from udpfast.config import PAYLOADS

from .guarded_frame import GuardedPayload

__all__ = ["fuzz_venues"]

_SIZES = (0, 1, 2, 8, 18, 30, 46, 80, 200, 1400)
#: What a decoder says at most: the smallest entry of a message has 16 bytes.
_CHANGES_MAX = 4160


@cache
def _decoder(payload: int) -> GuardedPayload:
    return GuardedPayload(payload)


def fuzz_venues(seed: int, count: int) -> dict[str, int]:
    """Decode `count` messages; return how many said something of a book, were not, or refused."""
    pick = random.Random(seed)
    found = {"changes": 0, "opaque": 0, "refused": 0}
    payloads = [n for n, name in enumerate(PAYLOADS) if name not in ("none", "roq")]
    for _ in range(count):
        size = max(0, pick.choice(_SIZES) + pick.randint(-2, 2))
        data = bytearray(pick.randbytes(size))
        for at in range(min(size, 4)):
            if pick.random() < 0.5:  # what types, templates and counts look like
                data[at] = pick.choice(b"ABCDEFHILMOPQRSTUXaeh8500") if at < 2 else 0
        said = _decoder(pick.choice(payloads)).decode(bytes(data))
        assert said <= _CHANGES_MAX, f"{said} changes of {bytes(data).hex()}"
        found["changes" if said > 0 else "refused" if said == -1 else "opaque"] += 1
    return found

"""An agent that does what the file `order` in its instance's directory says."""

import os
import signal
import time

from udpfast.core.agent import Agent, CallableAgent
from udpfast.errors import RingClosedError
from udpfast.log.cursor import RingCursor
from udpfast.market.updates import PAYLOAD_HASH


def build(config, directory) -> Agent:
    """Return it; it follows the ring from the beginning, and says in `read` how far it came."""
    order = directory / "order"
    if order.read_text() == "refuse":
        raise OSError(5, "refused")
    cursor = RingCursor.attach(directory, "begin", payload_hash=PAYLOAD_HASH)

    def work(now_ns):
        match order.read_text():
            case "raise":
                raise ValueError("told to")
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "hang":
                time.sleep(0.2)
                return 1
            case "wait":
                return 0
        try:
            count = cursor.poll()
        except RingClosedError:
            return None
        if count:
            (directory / "read").write_text(str(cursor.index))
        return count

    return CallableAgent("side", work)

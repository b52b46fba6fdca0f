"""A line of a transmitter that keeps what it is given."""

from udpfast.feed.transmitter import datagrams_of


class ListLine:
    """Takes at most `takes` datagrams per call; while it is `down` it gives up all, unsent."""

    unreachable = 0
    down = False

    def __init__(self, takes=1 << 30):
        self.takes = takes
        self.datagrams = []

    @property
    def carried(self):
        return len(self.datagrams)

    @property
    def trouble(self):
        return "no way" if self.unreachable else ""

    def send(self, views):
        datagrams = datagrams_of(views)[: self.takes]
        if self.down:
            self.unreachable += len(datagrams)
        else:
            self.datagrams += datagrams
        return len(datagrams)

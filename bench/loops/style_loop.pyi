from udpfast.client.reader import Reader
from udpfast.log.cursor import RingCursor

__all__ = ["sum_batches", "sum_books"]

def sum_books(cursor: RingCursor) -> tuple[int, int]: ...
def sum_batches(reader: Reader) -> tuple[int, int]: ...

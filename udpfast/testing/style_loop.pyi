from udpfast.shm.cursor import RingCursor

__all__ = ["sum_books"]

def sum_books(cursor: RingCursor) -> tuple[int, int]: ...

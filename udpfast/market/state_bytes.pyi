__all__ = ["ENTRY_HASH"]

ENTRY_HASH: int

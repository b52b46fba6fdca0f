from udpfast.config import FeedConfig

__all__ = ["engine_memory_size"]

def engine_memory_size(config: FeedConfig) -> tuple[int, int]: ...

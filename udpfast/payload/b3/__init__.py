"""B3's binary UMDF."""

__all__ = []

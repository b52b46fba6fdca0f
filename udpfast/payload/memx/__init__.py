"""MEMX MEMOIR depth: single orders."""

__all__ = []

"""Eurex and Xetra's T7 Enhanced Order Book Interface."""

__all__ = []

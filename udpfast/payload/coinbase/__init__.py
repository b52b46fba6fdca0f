"""Coinbase Derivatives: single orders."""

__all__ = []

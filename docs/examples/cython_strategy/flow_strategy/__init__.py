"""A strategy in Cython: the flow of trades, weighed against the quote."""

from .flow import Flow

__all__ = ["Flow"]

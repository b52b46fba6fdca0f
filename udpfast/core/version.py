"""The version of this package: what is kept says who wrote it."""

__all__ = ["VERSION"]

VERSION = "0.1.0"

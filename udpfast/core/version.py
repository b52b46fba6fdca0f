"""The version of this package, with which kept data is marked."""

__all__ = ["VERSION"]

VERSION = "0.1.0"

"""Where Spark looks for the format "udpfast" by itself: `spark.read.format("udpfast")`."""

from udpfast.spark.source import UdpfastSource

__all__ = ["DefaultSource"]


class DefaultSource(UdpfastSource):
    """Tables of a journal; see `udpfast.spark.source`."""

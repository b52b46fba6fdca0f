"""The module in which Spark finds the format "udpfast": `spark.read.format("udpfast")`."""

from udpfast.spark.source import UdpfastSource

__all__ = ["DefaultSource"]


class DefaultSource(UdpfastSource):
    """The source of journal tables that Spark finds by its name; see `udpfast.spark.source`."""

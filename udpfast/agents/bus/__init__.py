"""A host's part of a bus: sockets, disk and clock around the machines of `bus`."""

__all__: list[str] = []

"""Framings: how venues pack messages into datagrams.

The command `udpfast wire` measures lines; from Python, the package `udpfast.probe` does.
"""

"""Benchmarks: each states its question, draws its topology, verifies its result.

`python -m bench` in a checkout is `udpfast bench`; installed, this package is `udpfast_bench`.
"""

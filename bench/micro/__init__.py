"""Single operations: timed by pytest-benchmark (`pytest bench/micro`), counted by callgrind.

They lie below the benchmarks of `udpfast bench`: no socket, no second process, one thread.
"""

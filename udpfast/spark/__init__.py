"""What was kept, on Spark: a session that knows its traps, the jobs, and their report.

Wants the extra `[spark]` and Java 17 or newer. Nothing of udpfast imports this package but
`udpfast spark`: who receives and trades never loads it.
"""

from udpfast.spark.session import open_session

__all__ = ["open_session"]

"""Streams of Spark that take what there is, and end."""

from pathlib import Path
from typing import TYPE_CHECKING

from tests.waiting import PATIENCE_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: Spark gives a stream's Python ten seconds to start, which a busy host may need for others.
LATE_WORKER = "failed to connect back"
TRIES = 30


def drain(stream: "DataFrame", sink: Path) -> list[int]:
    """Take what there is into Parquet below `sink`; return the rows of each batch."""
    from pyspark.errors import StreamingQueryException

    writer = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(sink / "checkpoint"))
        .trigger(availableNow=True)
    )
    batches: list[int] = []
    for left in reversed(range(TRIES)):
        query = writer.start(str(sink / "rows"))
        try:
            assert query.awaitTermination(PATIENCE_S)
        except StreamingQueryException as error:
            if LATE_WORKER not in str(error) or not left:
                raise
        else:
            break
        finally:
            rows = [batch["numInputRows"] for batch in query.recentProgress]
            batches += [count for count in rows if count]
    return batches

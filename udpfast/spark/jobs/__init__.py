"""Gold: one table per question, and one job per table."""

from udpfast.spark.jobs.bars import BARS, INSTRUMENTS, SPREADS
from udpfast.spark.jobs.book import BOOK, DEPTH
from udpfast.spark.jobs.bus import BUS, SEEN
from udpfast.spark.jobs.imbalance import IMBALANCE
from udpfast.spark.jobs.job import Job, Parameters
from udpfast.spark.jobs.leadlag import LEADLAG
from udpfast.spark.jobs.losses import LINES, LOSSES, RATES
from udpfast.spark.jobs.orders import ORDERS
from udpfast.spark.jobs.race import HOPS, RACES

__all__ = ["JOBS", "Job", "Parameters"]

#: The jobs by name, in the order of the report.
JOBS: dict[str, Job] = {
    job.name: job
    for job in (
        LOSSES,
        RATES,
        LINES,
        RACES,
        HOPS,
        INSTRUMENTS,
        BARS,
        SPREADS,
        IMBALANCE,
        DEPTH,
        BOOK,
        ORDERS,
        LEADLAG,
        BUS,
        SEEN,
    )
}

"""The questions of the reports as one writes them for Spark by hand, over views of an export.

Each selects what its job shows, under the same names, in the same order; prices of one instrument
that differ in time differ in place, so either says which came last.
"""

from __future__ import annotations

__all__ = ["QUERIES"]

TRADES = """
SELECT feed, exchange, symbol, {time}
       min_by(price, received_ns) AS open, max(price) AS high, min(price) AS low,
       max_by(price, received_ns) AS close, count(*) AS trades, sum(quantity) AS volume,
       sum(price * quantity) AS notional, count_if(side = 'Buy') AS taker_buys,
       sum(price * quantity) / sum(quantity) AS vwap
FROM trades WHERE stream = 0 GROUP BY ALL ORDER BY feed, exchange, symbol{order}
"""

MINUTE = "timestamp_seconds(received_ns div 60000000000 * 60) AS time,"
HOUR = "timestamp_seconds(received_ns div 3600000000000 * 3600) AS hour"

SPREADS = f"""
SELECT feed, exchange, symbol, {MINUTE}
       count(*) AS quotes, avg(ask_price - bid_price) AS spread_mean,
       min(ask_price - bid_price) AS spread_min, max(ask_price - bid_price) AS spread_max,
       avg((ask_price - bid_price) / ((ask_price + bid_price) / 2)) * 10000 AS spread_bps_mean,
       avg(bid_quantity) AS bid_quantity_mean, avg(ask_quantity) AS ask_quantity_mean,
       max_by(bid_price, received_ns) AS bid_price, max_by(ask_price, received_ns) AS ask_price
FROM tops GROUP BY ALL ORDER BY feed, exchange, symbol, time
"""

LOSSES = f"""
WITH delivered AS (
    SELECT feed, stream, {HOUR}, count_if(kind IN ('MESSAGE', 'BOOK', 'TRADES')) AS messages
    FROM messages WHERE kind <> 'GAP' GROUP BY ALL
), lost AS (
    SELECT feed, stream, {HOUR}, count(*) AS gaps, sum(lost) AS lost, max(lost) AS longest
    FROM gaps GROUP BY ALL
)
SELECT feed, stream, hour, messages, gaps, lost, longest, lost / (messages + lost) AS loss
FROM delivered JOIN lost USING (feed, stream, hour) ORDER BY feed, stream, hour
"""

LINES = f"""
SELECT feed, stream, line, hour, count(*) AS datagrams, count(delay) AS brought,
       count_if(winner = line) AS first, count(*) - count(delay) AS missing
FROM (SELECT feed, stream, winner, {HOUR}, posexplode(delays_ns) AS (line, delay) FROM races)
GROUP BY ALL ORDER BY feed, stream, line, hour
"""

RACES = """
SELECT feed, stream, winner AS line, count(*) AS wins, count_if(completed) AS messages_completed,
       count_if(lead_ns IS NULL) AS only_copy, sum(greatest(lead_ns, 0)) AS saved_ns,
       percentile(lead_ns, array(0.5, 0.9, 0.99, 0.999, 0.9999)) AS leads
FROM races GROUP BY ALL ORDER BY feed, stream, line
"""

BOOK = """
WITH newest AS (
    SELECT feed, exchange, symbol, max(position) AS newest
    FROM levels WHERE snapshot GROUP BY ALL
), standing AS (
    SELECT feed, exchange, symbol, side, price, max_by(quantity, position + row) AS quantity
    FROM levels JOIN newest USING (feed, exchange, symbol) WHERE position >= newest
    GROUP BY ALL HAVING quantity > 0
)
SELECT feed, exchange, symbol, side,
       row_number() OVER (
           PARTITION BY feed, exchange, symbol, side ORDER BY IF(side = 'Ask', price, -price)
       ) - 1 AS level, price, quantity
FROM standing
ORDER BY feed, exchange, symbol, side, level
"""

#: By the name of the job that answers the same.
QUERIES = {
    "instruments": TRADES.format(time="", order=""),
    "bars": TRADES.format(time=MINUTE, order=", time"),
    "spreads": SPREADS,
    "losses": LOSSES,
    "lines": LINES,
    "races": RACES,
    "book": BOOK,
}

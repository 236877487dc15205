"""Which queries there are, and what their results are like."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["CHANGES", "QUERIES", "ROWS", "TOTAL", "Query", "side_input"]

ROWS = "rows"
CHANGES = "changes"
TOTAL = "total"


class Query(NamedTuple):
    """A query. `results` are rows, changes of rows, or rows of which only the sum of the second field is certain."""

    name: str
    title: str
    results: str = ROWS


QUERIES = {
    query.name: query
    for query in [
        Query("q0", "bids as they are"),
        Query("q1", "prices in euros"),
        Query("q2", "bids of some auctions"),
        Query("q3", "who sells what in three states"),
        Query("q4", "mean winning price of a category", CHANGES),
        Query("q5", "auctions with most bids, 10 s by 2 s"),
        Query("q6", "mean price of a seller's last ten auctions", CHANGES),
        Query("q7", "highest bid of 10 s"),
        Query("q8", "who came and sold within 10 s"),
        Query("q9", "winning bid of each auction"),
        Query("q11", "bids in a session, gap 10 s"),
        Query("q12", "bids in 10 s of the clock", TOTAL),
        Query("q13", "bids and a table of 10,000 rows"),
        Query("q14", "calculation and letters counted"),
        Query("q16", "statistics of each channel and day"),
        Query("q18", "last bid of each bidder and auction", CHANGES),
        Query("q19", "ten highest bids of each auction", CHANGES),
        Query("q20", "bids with auctions of a category"),
    ]
}


def side_input() -> dict[int, str]:
    """The table of query 13.

    >>> side_input()[7]
    'side input 7'
    """
    return {key: f"side input {key}" for key in range(10_000)}

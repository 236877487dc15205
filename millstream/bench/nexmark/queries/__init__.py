"""The queries as DataStream programs: each module has a function `query`, from the stream of all events to the results.

Events have their timestamps, and watermarks four seconds behind them. Where a result may change later, a result is a
change: 1 for a row that is there now or -1 for one that is no longer, and the row; so the rows that remain do not
depend on the order of events. Rows hold whole numbers and texts only.
"""

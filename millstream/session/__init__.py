"""Sessions: a Spark that stays warm and takes jobs, each in a process of its own (Flink's dispatcher).

Nothing here imports Spark: what a session needs of it is `engine.Engine`, which `millstream.spark.host` is.
"""

"""Meet Spark: read any frame, process it per record, write it with any Spark writer."""

import tempfile

from pyspark.sql import SparkSession

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.spark import SparkSink

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
orders = spark.createDataFrame(
    [("ann", 10), ("bob", 5), ("ann", 7)], "customer string, amount long"
)
folder = tempfile.mkdtemp()

env = StreamExecutionEnvironment.get_execution_environment()
totals = (
    env.from_dataframe(orders)
    .map(lambda row: (row.customer, row.amount), Types.TUPLE([Types.STRING(), Types.LONG()]))
    .key_by(0)
    .sum(1)
)
totals.sink_to(
    SparkSink(
        lambda df, epoch: df.write.mode("append").parquet(folder), "customer string, total long"
    )
)
env.execute("spark frames")
spark.read.parquet(folder).groupBy("customer").max("total").orderBy("customer").show()

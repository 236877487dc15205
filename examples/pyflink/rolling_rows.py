"""Rolling sums, extremes and a reduce over rows with named fields."""

from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment

ROW_TYPE = Types.ROW_NAMED(
    ["city", "day", "degrees"], [Types.STRING(), Types.INT(), Types.DOUBLE()]
)
DAYS = [
    Row("Oslo", 1, 4.0),
    Row("Rome", 1, 17.5),
    Row("Oslo", 2, -3.5),
    Row("Oslo", 3, -3.5),
    Row("Rome", 2, 21.0),
    Row("Rome", 3, 15.25),
]


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    days = env.from_collection(DAYS, type_info=ROW_TYPE)
    cities = days.key_by(lambda row: row.city, key_type=Types.STRING())
    cities.sum("degrees").print("sum")
    cities.min("degrees").print("min")
    cities.max(2).print("max")
    cities.min_by("degrees").print("min by")
    cities.max_by("day").print("max by")
    cities.reduce(
        lambda one, other: Row(city=one.city, day=other.day, degrees=one.degrees + other.degrees)
    ).map(
        lambda row: f"{row['city']}: {row.degrees / row.day:.2f} a day", output_type=Types.STRING()
    ).print("mean")
    env.execute("weather")


if __name__ == "__main__":
    main()

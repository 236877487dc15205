"""How values of each declared type are printed."""

from datetime import date, datetime, time
from decimal import Decimal

from pyflink.common import Row, Types
from pyflink.datastream import StreamExecutionEnvironment

# A name, the type, and values of it.
TYPED = [
    ("string", Types.STRING(), ["a", "b c"]),
    ("boolean", Types.BOOLEAN(), [True, False]),
    ("short", Types.SHORT(), [1, -2]),
    ("long", Types.LONG(), [2**40]),
    ("double", Types.DOUBLE(), [1.0, 0.1, 1234567.5, 12345678.5, 1e-4, 1.5e300, -2.25]),
    ("float", Types.FLOAT(), [0.1, 3.5, 1e10]),
    ("decimal", Types.BIG_DEC(), [Decimal("12.50")]),
    ("tuple", Types.TUPLE([Types.STRING(), Types.BOOLEAN()]), [("x", True)]),
    (
        "nested",
        Types.TUPLE([Types.INT(), Types.TUPLE([Types.STRING(), Types.DOUBLE()])]),
        [(1, ("y", 2.0))],
    ),
    ("row", Types.ROW([Types.STRING(), Types.BOOLEAN()]), [Row("z", True)]),
    (
        "named row",
        Types.ROW_NAMED(["name", "n"], [Types.STRING(), Types.LONG()]),
        [Row(name="w", n=3)],
    ),
    ("date", Types.SQL_DATE(), [date(2024, 2, 29)]),
    ("time", Types.SQL_TIME(), [time(7, 8, 9)]),
    ("timestamp", Types.SQL_TIMESTAMP(), [datetime(2024, 2, 29, 7, 8, 9, 120000)]),  # noqa: DTZ001
]
COLLECTIONS = Types.TUPLE(
    [Types.LIST(Types.INT()), Types.MAP(Types.STRING(), Types.BOOLEAN()), Types.STRING()]
)
UNTYPED = [("t", 1), ["l", 2], {"d": 3}, None, 1.5, True, Row("r", None), Row(a=1)]


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    for name, kind, values in TYPED:
        env.from_collection(values, type_info=kind).print(name)
    numbers = env.from_collection(list(range(len(UNTYPED))), type_info=Types.INT())
    numbers.map(lambda at: UNTYPED[at]).print("untyped")
    numbers.map(lambda at: ([at, 1], {"k": at > 3}, "s"), output_type=COLLECTIONS).print("both")
    numbers.map(lambda at: [f"n{at}", "x"], output_type=Types.LIST(Types.STRING())).print("list")
    env.execute("types")


if __name__ == "__main__":
    main()

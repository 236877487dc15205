"""Visits to a web site: the pages that a user opens with less than half a minute between them."""

from collections.abc import Iterable

from pyflink.common import Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import ProcessWindowFunction, StreamExecutionEnvironment
from pyflink.datastream.window import EventTimeSessionWindows

CLICKS = [
    ("ann", "/home", 0),
    ("bob", "/home", 3_000),
    ("ann", "/mills", 10_000),
    ("ann", "/mills/2", 39_000),
    ("bob", "/rivers", 33_000),
    ("ann", "/home", 90_000),
    ("cid", "/home", 91_000),
    ("ann", "/rivers", 95_000),
    ("bob", "/home", 200_000),
]


class ClickTime(TimestampAssigner):
    def extract_timestamp(self, value, record_timestamp):
        return value[2]


class Visit(ProcessWindowFunction[tuple, str, str, object]):
    def process(self, key: str, context, elements: Iterable[tuple]) -> Iterable[str]:
        pages = sorted((time, page) for _, page, time in elements)
        window = context.window()
        path = " ".join(page for _, page in pages)
        yield f"{key} from {window.start} to {window.end}: {path}"


def main():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    clicks = env.from_collection(
        CLICKS, type_info=Types.TUPLE([Types.STRING(), Types.STRING(), Types.LONG()])
    )
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(ClickTime())
    visits = (
        clicks.assign_timestamps_and_watermarks(strategy)
        .key_by(lambda click: click[0], key_type=Types.STRING())
        .window(EventTimeSessionWindows.with_gap(Time.seconds(30)))
        .process(Visit(), Types.STRING())
    )
    visits.print()
    env.execute("visits")


if __name__ == "__main__":
    main()

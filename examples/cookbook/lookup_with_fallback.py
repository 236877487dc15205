"""A slow service asked for many records at once; what it does not answer in time goes on without, to be asked again
later.

`async_invoke` runs in an event loop: up to ten questions are under way. A record has half a second; then `timeout`
says what becomes of it. Here such records leave through a side output.
"""

import asyncio

from millstream.common import Time
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    OutputTag,
    StreamExecutionEnvironment,
)

UNANSWERED = OutputTag("unanswered")
CITIES = {"75001": "Paris", "0150": "Oslo", "53111": "Bonn"}
# Parcel, postcode.
PARCELS = [("p1", "75001"), ("p2", "99999"), ("p3", "0150"), ("p4", "stuck"), ("p5", "53111")]


class City(AsyncFunction):
    async def open(self, ctx):  # type: ignore[override]
        self.connection = asyncio.Semaphore(4)  # in earnest: a client with some connections

    async def async_invoke(self, parcel):
        async with self.connection:
            await asyncio.sleep(60 if parcel[1] == "stuck" else 0.01)
            return [f"{parcel[0]}: {CITIES.get(parcel[1], 'no such postcode')}"]

    def timeout(self, parcel):
        return [(UNANSWERED, parcel)]


env = StreamExecutionEnvironment.get_execution_environment()
parcels = env.from_collection(PARCELS)
found = AsyncDataStream.ordered_wait(parcels, City(), Time.milliseconds(500), capacity=10)
found.print()
found.get_side_output(UNANSWERED).print("ask again")
env.execute("lookup with fallback")

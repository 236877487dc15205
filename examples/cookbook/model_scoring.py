"""Payments scored by a model: read from its file once per subtask, then asked for each record.

`open` runs where the function runs, so the file has to be on every machine: docs/dependencies.md says how it gets
there. The model is only read, never changed, so an attribute may hold it. What a function learns from records belongs
into state.
"""

import json
import math
import sys
import tempfile
from pathlib import Path

from millstream.datastream import MapFunction, StreamExecutionEnvironment

# A logistic regression, as a training job might leave it.
MODEL = {"bias": -4.0, "amount": 0.004, "abroad": 1.5, "night": 1.0}

PAYMENTS = [
    {"id": 1, "amount": 40.0, "abroad": 0, "night": 0},
    {"id": 2, "amount": 900.0, "abroad": 1, "night": 1},
    {"id": 3, "amount": 120.0, "abroad": 1, "night": 0},
    {"id": 4, "amount": 700.0, "abroad": 0, "night": 1},
]


class Score(MapFunction):
    def __init__(self, path):
        self.path = path

    def open(self, ctx):
        self.weights = json.loads(Path(self.path).read_text())

    def map(self, payment):
        features = {name: payment[name] for name in self.weights if name != "bias"}
        total = self.weights["bias"] + sum(self.weights[n] * v for n, v in features.items())
        return payment["id"], 1 / (1 + math.exp(-total))


folder = Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())
(folder / "model.json").write_text(json.dumps(MODEL))

env = StreamExecutionEnvironment.get_execution_environment()
scored = env.from_collection(PAYMENTS).map(Score(str(folder / "model.json")))
scored.map(lambda pair: f"payment {pair[0]}: {pair[1]:.2f}{' !' if pair[1] > 0.5 else ''}").print()
env.execute("model scoring")

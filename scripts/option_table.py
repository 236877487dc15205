"""Writes docs/options.md: every configuration key that Millstream knows, what it takes, and what it does.

Nothing in that page is written by hand: it is `millstream.common.options`, in its order. Usage:
python scripts/option_table.py [--check]
"""

from __future__ import annotations

import sys

import written_page

from millstream.common import options
from millstream.common.config_options import ConfigOption
from millstream.common.reporter_options import OF_REPORTERS, option_of

HEAD = """\
# Options

Written by `scripts/option_table.py` from the code; do not edit. The keys are Flink's where Flink has one. They are
set on the command line (`millstream run -Dkey=value job.py`) or in the program:

```python
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

config = Configuration.from_dict({"parallelism.default": "2"})
env = StreamExecutionEnvironment.get_execution_environment(config)
```

What the program sets itself, by configuration or by a call (`env.set_parallelism(2)`), counts before the command
line, as in Flink. A key that nobody knows is warned of, with the nearest that there is; a value that cannot work is
refused. Keys that begin with `spark.` are handed to Spark as they are.

"""


def cell(text: str) -> str:
    """Text for a cell of a table."""
    return text.replace("|", "\\|")


def works(option: ConfigOption[object]) -> str:
    """The line of an option that does something."""
    default = option.default
    if isinstance(default, bool):
        default = str(default).lower()
    default = "" if default is None else f"`{default}`"
    return f"| `{option.key}` | {cell(option.wanted)} | {default} | {cell(option.description)} |"


def page() -> str:
    """The whole page."""
    active = [option for key, option in options.ALL.items() if key not in options.NO_EFFECT]
    lines = [
        "| key | value | default | what it does |",
        "|---|---|---|---|",
        *map(works, active),
        "",
        "## Of metrics reporters",
        "",
        "`<name>` stands for one of `metrics.reporters`. [Monitoring](monitoring.md) has examples.",
        "",
        "| key | value | default | what it does |",
        "|---|---|---|---|",
        *(works(option_of("<name>", option)) for option in OF_REPORTERS.values()),
        "",
        "## Without effect",
        "",
        "These are Flink's, are accepted, and warn when they are set to anything but their default. Those that end in",
        "a dot stand for all keys that begin so.",
        "",
        "| key | why nothing depends on it |",
        "|---|---|",
        *(f"| `{key}` | {cell(why)} |" for key, why in sorted(options.NO_EFFECT.items())),
        "",
        "## Older keys",
        "",
        "Flink still reads them, and so does Millstream.",
        "",
        "| key | stands for |",
        "|---|---|",
        *(f"| `{old}` | `{new}` |" for old, new in sorted(options.OLDER.items())),
    ]
    return HEAD + "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(written_page.main("options.md", page()))

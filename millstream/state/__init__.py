"""State from outside: look into a savepoint or checkpoint, and repair it (Flink's State Processor API).

```
frame = millstream.state.read(path, "counter", "count")  # a Spark frame: key, value
frame = millstream.state.read_pandas(path, "counter", "count")  # a pandas one

savepoint = millstream.state.edit(path)
savepoint.update("counter", "count", lambda key, value: value if value >= 0 else None)
savepoint.put("counter", "count", "forgotten", 1)
savepoint.write(new_path)  # then: millstream run -s new_path job.py
```
"""

from __future__ import annotations

from millstream.state.editor import SavepointEditor, edit
from millstream.state.reader import SavepointReader, open_savepoint, read, read_pandas

__all__ = ["SavepointEditor", "SavepointReader", "edit", "open_savepoint", "read", "read_pandas"]

"""Type variables that let an editor follow records through a program.

Each stands for `Any` where a class is named without its parameters, as in `class Upper(MapFunction)`: nobody has to
write them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from millstream.api.windows import Window

    T = TypeVar("T", default=Any)
    T1 = TypeVar("T1", default=Any)
    T2 = TypeVar("T2", default=Any)
    U = TypeVar("U", default=Any)
    K = TypeVar("K", default=Any)
    W = TypeVar("W", bound=Window, default=Any)
    W2 = TypeVar("W2", bound=Window, default=Any)
    ACC = TypeVar("ACC", default=Any)
else:
    from typing import TypeVar

    T, T1, T2, U = TypeVar("T"), TypeVar("T1"), TypeVar("T2"), TypeVar("U")
    K, W, W2, ACC = TypeVar("K"), TypeVar("W"), TypeVar("W2"), TypeVar("ACC")

__all__ = ["ACC", "T1", "T2", "W2", "K", "T", "U", "W"]

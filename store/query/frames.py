"""Rows of a store as pandas frames, for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

_SHOWN = ("display.precision", 4, "display.expand_frame_repr", False, "display.max_columns", 30)


class Frame(pd.DataFrame):
    """A pandas frame that is shown with four decimals and one line per row; its values are not rounded."""

    @property
    def _constructor(self) -> Callable[..., Frame]:
        return Frame

    def __repr__(self) -> str:
        with pd.option_context(*_SHOWN):
            return super().__repr__()

    def _repr_html_(self) -> str | None:
        with pd.option_context(*_SHOWN):
            return super()._repr_html_()  # type: ignore[misc,no-any-return]


def frame_of(rows: pa.Table | Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> Frame:
    """Rows as a frame with the index 0, 1, …; of ``columns``, in their order, or with all.

    Without rows, the frame has the columns of the table, or ``columns``.
    """
    table = rows.to_pandas() if isinstance(rows, pa.Table) else pd.DataFrame([dict(row) for row in rows])
    chosen = [name for name in columns or () if name in table.columns or not len(table)]
    return Frame(table.reindex(columns=chosen) if chosen else table)

"""The two kinds of failure that the command line tells apart.

Exception
├── ValueError
│   └── RequestError     the request was wrong (exit code 2); nothing was done
└── RuntimeError
    └── WorkError        the request was right, the work failed (exit code 1); what was stored is kept

Every other exception is a defect of capim and is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest of the known names as the beginning of a remark; empty if none is near.

    Examples:
        >>> did_you_mean("tiny-clap", ["tiny-clip", "tiny-colpali"]), did_you_mean("x", ["tiny-clip"])
        ("did you mean 'tiny-clip'? ", '')
    """
    near = get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}? " if near else ""


class RequestError(ValueError):
    """The request cannot be carried out; the message lists every fault that was found.

    Examples:
        >>> print(RequestError(["corpus 'x' is unknown", "device 'gpu' is unknown"]))
        2 faults:
          - corpus 'x' is unknown
          - device 'gpu' is unknown
    """

    def __init__(self, faults: str | Sequence[str]) -> None:
        self.faults: tuple[str, ...] = (faults,) if isinstance(faults, str) else tuple(faults)
        if len(self.faults) == 1:
            message = self.faults[0]
        else:
            message = "\n".join([f"{len(self.faults)} faults:", *(f"  - {f}" for f in self.faults)])
        super().__init__(message)

    def __reduce__(self) -> tuple[type[RequestError], tuple[tuple[str, ...]]]:
        return (type(self), (self.faults,))


class WorkError(RuntimeError):
    """The work failed; the message says what failed, what was kept and what to do next.

    Attributes:
        problem: What failed.
        remedy: What to do next, as one sentence; empty if it is part of ``problem``.

    Examples:
        >>> print(WorkError("table 'runs' cannot be read", remedy="Run `capim store verify`"))
        table 'runs' cannot be read. Run `capim store verify`
    """

    def __init__(self, problem: str, *, remedy: str = "") -> None:
        super().__init__(f"{problem}. {remedy}" if remedy else problem)
        self.problem = problem
        self.remedy = remedy

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.problem,), {"args": self.args, "remedy": self.remedy})

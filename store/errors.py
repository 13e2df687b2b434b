"""The two kinds of failure that the command line tells apart.

Exception
├── ValueError
│   └── RequestError     the request was wrong (exit code 2); nothing was done
└── RuntimeError
    └── WorkError        the request was right, the work failed (exit code 1); what was stored is kept

Everything else is a fault of capim itself and shows as such.
"""

from __future__ import annotations

from collections.abc import Sequence


class RequestError(ValueError):
    """What was asked for cannot be done as asked; lists every fault found.

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
    """The work broke off: says what broke, what was kept and what to do next."""

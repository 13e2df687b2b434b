"""Progress of long work, reported to a listener, and the progress of a whole run.

Code wraps its loop in :func:`track`; the command line listens and draws bars, a Prefect flow listens and updates an
artifact, and without a listener nothing happens. :class:`Overall` combines the reports of a run into one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock

DOWNLOADED = "MB downloaded"
"""The unit of downloads, which are announced before they begin."""
QUIET_SECONDS = 2.0  # shorter work is not worth a line
_EARLY = 0.08  # the part of a run before which its time left is a guess
STEPS = {"embed": 0.2, "score": 0.28, "compare": 0.28, "diagnose": 0.12, "publish": 0.12}
"""The steps of a run, and the approximate fraction of its time that each takes, measured with the demo."""
STEPS_OF = {
    "benchmark": tuple(STEPS),
    "embed": ("embed",),
    "evaluate": ("score",),
    "compare": ("compare", "diagnose"),
    "watch": ("embed", "score"),
}
"""The steps of each flow; in other flows each piece of work is independent."""
_DONE = {
    "embed": "encoded",
    "score": "scored",
    "complete-figures": "completed",
    "custom-metric": "evaluated",
    "compare": "compared",
    "compare-combined": "compared over several protocols",
    "diagnose": "sliced",
    "publish": "report written",
}


@dataclass(frozen=True, kw_only=True)
class Progress:
    """One step of one piece of work.

    Attributes:
        work: Description of the work, unique among concurrent work: ``"tiny-clip · shapes · images"``.
        done: Number of finished units, including the known part of those in progress.
        total: Number of all units; ``done == total`` ends the work.
        unit: Kind of units: ``images``, ``captions``, ``encoders``.
        step: True if it is a whole step of a run, which consists of such pieces.
    """

    work: str
    done: float
    total: int
    unit: str
    step: bool = False


Listener = Callable[[Progress], None]

_listener: ContextVar[Listener | None] = ContextVar("progress_listener", default=None)


def current_listener() -> Listener:
    """Return the current listener, or one that does nothing."""
    return _listener.get() or (lambda _progress: None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Send every progress of the block to ``listener``, which one thread calls at a time: tasks run in several."""
    lock = Lock()

    def locked(progress: Progress) -> None:
        with lock:
            listener(progress)

    token = _listener.set(locked)
    try:
        yield
    finally:
        _listener.reset(token)


@contextmanager
def track(work: str, *, total: int, unit: str, step: bool = False) -> Iterator[Callable[[float], None]]:
    """Yield a callback that takes the number of units just finished.

    Examples:
        >>> seen = []
        >>> with listening(lambda p: seen.append((p.done, p.total))), track("w", total=3, unit="images") as advance:
        ...     advance(2)
        ...     advance(1)
        >>> seen
        [(0, 3), (2, 3), (3, 3)]
    """
    listener = _listener.get()
    done: float = 0

    def advance(units: float) -> None:
        nonlocal done
        done += units
        if listener is not None:
            listener(Progress(work=work, done=round(done, 6), total=total, unit=unit, step=step))

    advance(0)
    yield advance


@dataclass
class Overall:
    """The progress of a whole run, from the reports of its steps and of their pieces.

    A step without work, because the store has everything, is left out of the time estimate.

    Examples:
        >>> run = Overall(steps={"embed": 1.0, "score": 3.0})
        >>> run.listen(Progress(work="embed", done=0, total=2, unit="tasks", step=True), 0.0)
        ''
        >>> run.listen(Progress(work="embed", done=1, total=2, unit="tasks", step=True), 4.0)
        ''
        >>> run.fraction, run.left(4.0)
        (0.125, 28.0)
    """

    steps: Mapping[str, float]
    corpora: int = 1  # number of corpora that an encoder encodes
    now: str = ""
    _fractions: dict[str, float] = field(default_factory=dict)
    _idle: set[str] = field(default_factory=set)
    _counts: Counter[str] = field(default_factory=Counter)  # counts of the step's pieces, by unit
    _step: Progress | None = None
    _begun: float = 0.0
    _pieces: float = 0.0  # finished pieces of the part in progress

    @classmethod
    def of(cls, flow: str, corpora: int) -> Overall:
        """Return the progress of a run of this flow, not yet begun."""
        return cls(steps={name: STEPS[name] for name in STEPS_OF.get(flow, ())}, corpora=max(corpora, 1))

    @property
    def fraction(self) -> float:
        """The part of the run that is done, 0..1."""
        return self._share_done(self.steps)

    def left(self, seconds: float) -> float | None:
        """Return the seconds that are left, ``seconds`` after the start; None while that would be a guess."""
        done = self._share_done({name: share for name, share in self.steps.items() if name not in self._idle})
        return seconds * (1 - done) / done if done > _EARLY else None

    def listen(self, progress: Progress, seconds: float) -> str:
        """Take one report, ``seconds`` after the start; return a line about the work that ended with it, or nothing."""
        if not progress.step:
            return self._listen_to_piece(progress, seconds)
        if progress.done == 0:
            self._begun, self._counts = seconds, Counter()
        self._step, self._pieces = progress, 0.0
        self._place(progress)
        if progress.done < progress.total:
            return ""
        self._step, took = None, seconds - self._begun
        if not self._counts and took < QUIET_SECONDS:
            self._idle.add(progress.work)
            return ""
        return " ".join([_DONE.get(progress.work, progress.work), *_amounts(self._counts), "in", clock(took)])

    def _listen_to_piece(self, progress: Progress, seconds: float) -> str:
        self.now = progress.work
        if self._step is None and progress.done == 0:
            self._begun = seconds
        finished = 0 < progress.total == progress.done
        self._counts[progress.unit] += progress.total * finished
        if self._step is not None:
            self._pieces = self._pieces // 1 + (1 if finished else progress.done / max(progress.total, 1))
            self._place(self._step)
            return ""
        self._fractions[""] = progress.done / max(progress.total, 1)
        took = seconds - self._begun
        return f"{progress.work}: {progress.total:,} {progress.unit} in {clock(took)}" if finished and took > 2 else ""

    def _place(self, step: Progress) -> None:
        """Record the progress of a step: its finished parts, and the pieces of the part in progress."""
        expected = 2 * self.corpora if step.work == "embed" else 1
        part = min(self._pieces / expected, 0.99) if step.done < step.total else 0.0
        self._fractions[step.work if self.steps else ""] = (step.done + part) / max(step.total, 1)

    def _share_done(self, steps: Mapping[str, float]) -> float:
        shares = steps or {"": 1.0}
        return sum(share * self._fractions.get(name, 0.0) for name, share in shares.items()) / sum(shares.values())


def clock(seconds: float) -> str:
    """Return a duration in whole seconds, or in minutes and seconds.

    Examples:
        >>> clock(3.4), clock(75), clock(3725)
        ('3 s', '1 min 15 s', '62 min 5 s')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def _amounts(counts: Counter[str]) -> list[str]:
    return [", ".join(f"{count:,} {unit}" for unit, count in counts.items() if count)] if counts.total() else []

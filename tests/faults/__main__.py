"""``python -m tests.faults``: everything that goes wrong, made to go wrong, and what is left afterwards.

Kills, full disks, cut networks, hostile captions and images, several runs at once: each against real
``capim`` processes on a workspace of its own. After each the suite is run again, ``capim store verify`` has to be
clean, and every row of ``capim results`` has to be that of an undisturbed run, to the last digit.

``--quick`` makes one fault of each kind; ``--only TEXT`` those whose kind or name has it; ``--seed N`` draws other
moments and places.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.faults import disks, hostile, hubs, kills, networks, surroundings, together
from tests.faults.course import summary, undergo
from tests.faults.fault import Fault
from tests.faults.process import import_libraries

KINDS = (kills, disks, networks, hubs, hostile, surroundings, together)


def chosen(*, quick: bool, only: str) -> list[Fault]:
    """Faults whose kind or name has a text; of each kind the first where it has to be quick."""
    faults = [fault for kind in KINDS for fault in kind.FAULTS if only in fault.kind or only in fault.name]
    first = {fault.kind: fault for fault in reversed(faults)}
    return [fault for fault in faults if fault is first[fault.kind]] if quick else faults


def main(argv: list[str] | None = None) -> int:
    """Returns 1 if anything was lost."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=0, help="of moments and places (default: 0)")
    parser.add_argument("--quick", action="store_true", help="one fault of each kind")
    parser.add_argument("--only", default="", metavar="TEXT", help="faults whose kind or name has this text")
    parser.add_argument("--folder", type=Path, help="work here and leave everything (default: a temporary folder)")
    args = parser.parse_args(argv)
    faults = chosen(quick=args.quick, only=args.only)
    import_libraries()
    with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        verdicts = undergo(faults, args.folder or Path(temporary), seed=args.seed, show=sys.stderr)
    print(summary(verdicts))
    return 0 if all(verdict.survived for verdict in verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())

"""All faults, by kind."""

from __future__ import annotations

from tests.faults import corruption, disks, hostile, hubs, kills, networks, surroundings, together
from tests.faults.fault import Fault

_KINDS = (kills, disks, networks, hubs, corruption, hostile, surroundings, together)
ALL = [fault for kind in _KINDS for fault in kind.FAULTS]


def chosen(*, quick: bool = False, only: str = "") -> list[Fault]:
    """Faults whose kind or name has a text; of each kind the first where it has to be quick."""
    faults = [fault for fault in ALL if only in fault.kind or only in fault.name]
    first = {fault.kind: fault for fault in reversed(faults)}
    return [fault for fault in faults if fault is first[fault.kind]] if quick else faults

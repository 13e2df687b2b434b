"""True if this process can draw the charts of a paper: their library needs address space that a limit may not leave."""

from __future__ import annotations

import resource
import subprocess
import sys
from functools import cache
from pathlib import Path

NO_CHARTS = "without charts: this process may not reserve the memory that drawing needs; raise its limit (ulimit -v)"
_TRY = """\
import mmap, sys
taken = mmap.mmap(-1, int(sys.argv[1]), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0)
import vl_convert
vl_convert.vegalite_to_svg({"mark": "point"})
"""


@cache
def can_draw() -> bool:
    """False if drawing would abort this process, as V8 does where it may not reserve its memory.

    Where the address space is limited, a process that has as much of it taken as this one tries.
    """
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        return True
    pages = Path("/proc/self/statm")
    taken = int(pages.read_text().split()[0]) * resource.getpagesize() if pages.exists() else 1
    return subprocess.run([sys.executable, "-c", _TRY, str(taken)], capture_output=True, check=False).returncode == 0

"""A command in a process without network and with a memory limit: for code, images and files of strangers.

The process gives up the network and begins anew, so that everything in it is held: models and metrics of others, image
decoders, readers of files. It is the Linux kernel that holds it (a network namespace of its own, in a user namespace
where it is not root's, and ``RLIMIT_DATA``); elsewhere there is no such thing, and the command is refused. What a
process can do to the files of its user, it can do in here: a container with other mounts prevents that.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from capim.store.errors import RequestError

_MARK = "CAPIM_ISOLATED"  # set in the process that began anew
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER and CLONE_NEWNET, see unshare(2)
_CONTAINER = "run it in a container instead: docker run --network none --memory 8g …"


def begin_anew(argv: Sequence[str]) -> None:
    """Replace this process by the same command without network and with half of the memory; in there, do nothing.

    Raises:
        RequestError: The platform cannot do it, or forbids it.
    """
    if os.environ.get(_MARK) == str(os.getpid()):
        return
    if sys.platform != "linux":
        raise RequestError(f"--isolated needs Linux, and this is {sys.platform}; {_CONTAINER}")
    import resource

    _leave_the_network()
    most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    limit = resource.getrlimit(resource.RLIMIT_DATA)[1]
    most = most if limit == resource.RLIM_INFINITY else min(most, limit)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    os.environ |= {_MARK: str(os.getpid()), "HF_HUB_OFFLINE": "1"}
    os.environ.pop("PREFECT_API_URL", None)  # no server can be reached
    sys.stderr.write(f"isolated: no network, at most {most / 2**30:.1f} GiB of memory\n")
    sys.stderr.flush()
    os.execv(sys.executable, [sys.executable, "-m", "capim.flows.cli", *argv])  # noqa: S606 - our own words


def _leave_the_network() -> None:
    """Give this process a network of its own, in which there is nothing.

    Raises:
        RequestError: The kernel forbids it.
    """
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK) == 0:
        return
    if libc.unshare(_NEW_USER | _NEW_NETWORK) != 0:
        reason = errno.errorcode.get(ctypes.get_errno(), "unknown")
        raise RequestError(f"--isolated: this kernel gives a process no network of its own ({reason}); {_CONTAINER}")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path(f"/proc/self/{name}").write_text(text, "ascii")

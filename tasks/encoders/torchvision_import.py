"""Let torchvision be imported beside a torch that it was not built for.

PyPI's torchvision is built for CUDA. Beside a CPU-only torch its compiled part cannot be loaded; torchvision
swallows that, then dies with "operator torchvision::nms does not exist", because it describes two operators that
nobody declared. Declaring their schemas (without kernels) lets the import through: image transforms work, only
detection operators and torchvision's own image decoding do not, and nothing here uses those. Where the compiled part
loads, nothing is changed.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Literal

_SCHEMAS = {
    "nms": "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms": "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}
_declared: list[object] = []  # a torch Library forgets its operators when it is collected


def ensure_torchvision() -> Literal["absent", "imported", "native", "declared"]:
    """Call before anything imports torchvision; may be called again at no cost.

    Returns:
        ``absent``: not installed. ``imported``: it was imported before. ``native``: its compiled part loads.
        ``declared``: the two schemas were declared.
    """
    if _declared:
        return "declared"
    if "torchvision" in sys.modules:
        return "imported"
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        return "absent"
    import torch

    folder = Path(next(iter(found.submodule_search_locations)))
    for library in [*folder.glob("_C*.so"), *folder.glob("_C*.pyd"), *folder.glob("_C*.dylib")]:
        try:
            torch.ops.load_library(str(library))  # type: ignore[no-untyped-call]
        except (OSError, ImportError):
            continue
        return "native"
    fragment = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    for name, schema in _SCHEMAS.items():
        if not hasattr(torch.ops.torchvision, name):
            fragment.define(schema)  # type: ignore[no-untyped-call]
    _declared.append(fragment)
    return "declared"

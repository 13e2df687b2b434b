"""The 80 object categories of COCO and the supercategory of each, from ``coco_categories.toml``."""

from __future__ import annotations

import tomllib
from pathlib import Path

CATEGORIES_OF: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
SUPERCATEGORY_OF = {category: supercategory for supercategory, names in CATEGORIES_OF.items() for category in names}

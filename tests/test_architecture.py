"""The packages of the product: their imports as a picture in ``docs/architecture.md``, and how much each may hold.

After a change of imports: ``python -m tests.test_architecture`` writes the page again.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
PACKAGES = ("deployments", "flows", "tasks", "reports", "store")
PLAIN = {"derive", "protocols", "references"}  # files in `tasks/` that are no Prefect tasks
MOST_FILES = 15
TABLES = {"tasks/corpora/readers", "reports/sections"}  # one file per row of a table
INTRODUCTION = """# Architecture

Imports between packages, as found in the code: the packages of `capim`, and in `tasks/` its packages and plain files;
`tasks` itself is the Prefect tasks, the other files in that folder. Imports run downwards only. An arrow that follows
from others is left out: every package may use those below it, and all use `store`.
"""
WAY = "\n## From a vector to a cell of the report\n"  # which is written by hand, below the picture


def package_of(module: str) -> str:
    """The package of a module: its top-level package, or the package inside ``tasks``."""
    top, _, rest = module.removeprefix("capim.").partition(".")
    inside = rest.partition(".")[0]
    own = (ROOT / "tasks" / inside).is_dir() or inside in PLAIN
    return f"tasks/{inside}" if top == "tasks" and inside and own else top


def imported_packages() -> dict[str, set[str]]:
    """Room -> the other packages that its modules import."""
    graph = grimp.build_graph("capim")
    packages: dict[str, set[str]] = {}
    for module in graph.modules - {"capim"}:
        imported = {package_of(name) for name in graph.find_modules_directly_imported_by(module) - {"capim"}}
        packages.setdefault(package_of(module), set()).update(imported - {package_of(module)})
    return packages


def reachable(packages: dict[str, set[str]], package: str) -> set[str]:
    """Every package that a package imports, directly or through others; itself where imports run in a circle."""
    found: set[str] = set()
    left = [*packages[package]]
    while left:
        if (following := left.pop()) not in found:
            found.add(following)
            left += packages[following]
    return found


def page() -> str:
    """The text of ``docs/architecture.md``."""
    packages = imported_packages()
    lines = [f'    {name.replace("/", "_")}["{name}"]' for name in sorted(packages)]
    for name, imported in sorted(packages.items()):
        through_others = {package for other in imported for package in reachable(packages, other)}
        lines += [
            f"    {name.replace('/', '_')} --> {package.replace('/', '_')}"
            for package in sorted(imported - through_others)
        ]
    return "\n".join([INTRODUCTION, "```mermaid", "graph TD", *lines, "```", ""])


def product_files() -> list[Path]:
    """Every Python file of the product."""
    return [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]


def test_the_picture_shows_the_imports_of_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8").startswith(page() + WAY), "run: python -m tests.test_architecture"


def test_every_place_on_the_way_of_a_figure_is_there() -> None:
    places = [place.partition(":") for place in re.findall(r"`([a-z_/]+\.py[:\w]*)`", PAGE.read_text(encoding="utf-8"))]
    assert len(places) > 25
    for file, _, name in places:
        assert re.search(rf"^(def|class) {name}\b", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE) or not name


def test_no_room_imports_itself_through_another() -> None:
    packages = imported_packages()
    assert not [package for package in packages if package in reachable(packages, package)]


def test_no_folder_holds_more_files_than_a_newcomer_can_look_over() -> None:
    folders = Counter(str(file.parent.relative_to(ROOT)) for file in product_files() if file.name != "__init__.py")
    assert not {folder: n for folder, n in folders.items() if n > MOST_FILES and folder not in TABLES}


if __name__ == "__main__":
    written_by_hand = PAGE.read_text(encoding="utf-8").partition(WAY)[2]
    PAGE.write_text(page() + WAY + written_by_hand, encoding="utf-8")
    sys.stdout.write(f"{PAGE}\n")

"""``python -m tests.packaging.audit``: known vulnerabilities of the pinned packages; or since when each is pinned.

pip-audit asks the index about every pin. If it gets no answer, ``pins.csv`` says how old each one is; ``--renew``
writes that list again, after ``make requirements``, with the times of upload that uv finds while it locks the pins.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PINS = Path(__file__).with_name("pins.csv")


def found(program: str) -> str:
    """The path of uv or uvx: on the PATH, else where the Makefile installs it."""
    return shutil.which(program) or str(Path(sys.executable).with_name(program))


def pins() -> list[str]:
    """The lines of requirements.txt: ``name==version``, some with a condition behind ``;``."""
    return (ROOT / "requirements.txt").read_text().splitlines()


def renew() -> int:
    """Write the list: name, version, day of upload; returns 0."""
    with tempfile.TemporaryDirectory() as folder:
        project = {"name": "pins", "version": "0", "requires-python": ">=3.11", "dependencies": pins()}
        lines = (f"{name} = {json.dumps(value)}" for name, value in project.items())
        Path(folder, "pyproject.toml").write_text("\n".join(["[project]", *lines]))
        subprocess.run([found("uv"), "lock", "--quiet", "--no-build"], cwd=folder, check=True)
        locked = tomllib.loads(Path(folder, "uv.lock").read_text())["package"]
    rows = []
    for package in locked:
        days = [file["upload-time"][:10] for file in package.get("wheels", [package.get("sdist", {})]) if file]
        rows += [(package["name"], package["version"], min(days))] if days else []
    with PINS.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([("name", "version", "uploaded"), *rows])
    return 0


def main() -> int:
    """Returns 1 if a pinned package has a known vulnerability."""
    words = ["-r", str(ROOT / "requirements.txt"), "--no-deps", "--disable-pip", "--progress-spinner", "off"]
    done = subprocess.run(
        [found("uvx"), "pip-audit", *words, "-f", "json"], capture_output=True, text=True, check=False
    )
    try:
        packages = json.loads(done.stdout)["dependencies"]
    except ValueError:
        reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
        print(f"pip-audit cannot be asked here ({reason}); the oldest pins of {PINS}:")
        with PINS.open() as file:
            rows = sorted(csv.DictReader(file), key=lambda row: row["uploaded"])
        print("\n".join(f"{row['uploaded']}  {row['name']} {row['version']}" for row in rows[:20]))
        return 0
    known = [(package, fault) for package in packages for fault in package.get("vulns", ())]
    print("\n".join(f"{package['name']} {package['version']}: {fault['id']}" for package, fault in known))
    print(f"{len(packages)} pinned packages, {len(known)} known vulnerabilities")
    return 1 if known else 0


if __name__ == "__main__":
    sys.exit(renew() if "--renew" in sys.argv else main())

"""Prints the sizes in docs/install.md: installs the core, each extra and all of them, and measures what lies there.

``python -m tests.packaging.sizes`` needs uv and the package registry. Its arguments are passed to ``uv pip install``:
``--torch-backend cpu`` for PyTorch's CPU builds, or ``--find-links FOLDER`` with such a build in a folder;
``--compile-bytecode`` as pip and make do, which takes half a minute for each.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def size_in_gigabytes(extras: str, options: list[str], folder: Path) -> float:
    """Install capim with some extras at the versions of requirements.txt; 0 where that fails."""
    python = str(folder / "bin" / "python")
    install = ["uv", "pip", "install", "-q", "-c", "requirements.txt", "--python", python, *options]
    subprocess.run(["uv", "venv", "-q", "--clear", "--python", sys.executable, str(folder)], check=True)
    if subprocess.run([*install, f".[{extras}]" if extras else "."], cwd=ROOT, check=False).returncode:
        return 0.0
    return int(subprocess.check_output(["du", "-sk", str(folder)], text=True).split()[0]) * 1024 / 1e9


def main(options: list[str]) -> None:
    """Print a row per environment."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for names in ["", *(name for name in extras if name not in ("all", "dev", "peers")), "all", "all,dev,peers"]:
        with tempfile.TemporaryDirectory() as folder:
            size = size_in_gigabytes(names, options, Path(folder) / "venv")
        sys.stdout.write(f"| {names or 'core'} | {size:.1f} GB |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])

"""The wheel: what `pip install .` puts into an environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("flows", "tasks", "store", "reports", "deployments")
WORKS = """\
import sys
from pathlib import Path
import capim, capim.flows.cli, capim.reports, capim.store, capim.tasks
places = {Path(module.__file__).resolve() for module in (capim, capim.flows, capim.reports, capim.store, capim.tasks)}
assert all(place.is_relative_to(sys.argv[1]) for place in places), places
assert capim.flows.cli.main(["list", "encoders", "--format", "csv"]) == 0
"""


@pytest.mark.slow  # builds the wheel: one second, and the imports of one process
def test_the_wheel_holds_every_file_of_the_product_and_works_in_another_folder(tmp_path: Path) -> None:
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    subprocess.run([uv, "build", "--wheel", "--quiet", "--out-dir", str(tmp_path), str(ROOT)], check=True)
    installed = tmp_path / "site"
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as wheel:
        wheel.extractall(installed)
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    tracked = subprocess.check_output(["git", "ls-files", *ROOMS], cwd=ROOT, text=True).splitlines()
    rooms = {f"capim/{name}" for name in tracked if not name.startswith("reports/sample/")}
    assert held == {"capim/__init__.py", "capim/py.typed", *rooms}

    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", WORKS, str(installed)],
        cwd=elsewhere, env={"PYTHONPATH": str(installed), "HOME": str(elsewhere)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "\ntiny-clip," in done.stdout
    assert not [*elsewhere.iterdir()]

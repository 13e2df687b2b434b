"""The wheel: what `pip install .` puts into an environment."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("flows", "tasks", "store", "reports", "deployments")
UV = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))


def built(source: Path, folder: Path) -> tuple[Path, dict[str, int]]:
    """The wheel of a checkout, and the names of its files with their checksums."""
    subprocess.run([UV, "build", "--wheel", "--quiet", "--out-dir", str(folder), str(source)], check=True)
    wheel = next(folder.glob("*.whl"))
    files = zipfile.ZipFile(wheel).infolist()
    return wheel, {file.filename: file.CRC for file in files if ".dist-info/" not in file.filename}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """The wheel of this checkout."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


def works(wheel: Path, folder: Path) -> None:
    """Installed into a fresh environment, which finds the other packages here, it lists encoders and writes nothing."""
    environment, empty = folder / "environment", folder / "empty"
    empty.mkdir()
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    [site] = environment.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib"))  # without its own .pth: no editable capim
    words = [UV, "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(environment), str(wheel)]
    subprocess.run(words, check=True)
    done = subprocess.run(
        [str(environment / "bin" / "capim"), "list", "encoders", "--format", "csv"],
        cwd=empty, env={"HOME": str(empty)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "\ntiny-clip," in done.stdout
    assert not [*empty.iterdir()]


@pytest.mark.slow  # builds the wheel: one second, an environment, and the imports of one process
def test_the_wheel_holds_every_file_of_the_product_and_works_in_another_folder(
    whole: tuple[Path, dict[str, int]], tmp_path: Path
) -> None:
    wheel, held = whole
    tracked = subprocess.check_output(["git", "ls-files", *ROOMS], cwd=ROOT, text=True).splitlines()
    packages = {f"capim/{name}" for name in tracked if not name.startswith("reports/sample/")}
    assert held.keys() == {"capim/__init__.py", "capim/__main__.py", "capim/py.typed", *packages}
    works(wheel, tmp_path)


@pytest.mark.slow  # builds another wheel
def test_what_the_docker_image_copies_gives_the_same_wheel(whole: tuple[Path, dict[str, int]], tmp_path: Path) -> None:
    context = tmp_path / "context"
    context.mkdir()
    for line in (ROOT / "deployments" / "Dockerfile").read_text().splitlines():
        if line.startswith("COPY "):
            *sources, target = line.split()[1:]
            for source in sources:  # a file that is not there fails the build, here as in Docker
                if (ROOT / source).is_dir():
                    caches = shutil.ignore_patterns("__pycache__")
                    shutil.copytree(ROOT / source, context / target, symlinks=True, ignore=caches)
                else:
                    shutil.copy(ROOT / source, context / target)
    assert built(context, tmp_path)[1] == whole[1]

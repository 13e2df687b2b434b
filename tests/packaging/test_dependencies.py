"""pyproject.toml declares every package that the product imports, and no other."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PLACES = ("capim", *(link.name for link in (ROOT / "capim").iterdir() if link.is_symlink()))  # links are not followed

# Declared although no module of the product imports them, and why.
NOT_IMPORTED = {
    "eccv-caption": "its data files are read, without importing it",
    "fastapi": "a version that works with Prefect",
    "language-data": "langcodes reads the names of languages from it",
    "protobuf": "transformers reads sentencepiece tokenizers through it",
    "sentencepiece": "transformers reads SigLIP's tokenizer with it",
    "sqlalchemy": "a version that works with Prefect",
    "einops": "imported by the code in jina's checkpoints",
    "timm": "imported by the code in jina's checkpoints",
    "torchvision": "uform needs it and does not declare it",
}


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=;! ]", name)[0]).lower()


@cache
def imported_modules() -> dict[str, Path]:
    """Top-level modules that the product imports, anywhere in a file, and one file for each."""
    modules: dict[str, Path] = {}
    for file in (file for name in sorted(PLACES) for file in (ROOT / name).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0]: file for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules[node.module.split(".")[0]] = file
    return {name: file for name, file in modules.items() if name not in {"capim"} | sys.stdlib_module_names}


def declared() -> set[str]:
    """Distributions of the core and of every extra that a user may install."""
    extras = PROJECT["project"]["optional-dependencies"]
    lists = [
        PROJECT["project"]["dependencies"],
        *(extras[name] for name in extras if name not in ("all", "dev", "peers")),
    ]
    return {normalised(requirement) for names in lists for requirement in names} - {"capim"}


def test_every_import_is_declared() -> None:
    distributions = packages_distributions()
    undeclared = {
        module: file
        for module, file in imported_modules().items()
        if not {normalised(name) for name in distributions.get(module, [module])} & declared()
    }
    assert not undeclared


def test_everything_declared_is_imported_or_has_a_reason() -> None:
    distributions = packages_distributions()
    used = {normalised(name) for module in imported_modules() for name in distributions.get(module, [module])}
    assert declared() - used == NOT_IMPORTED.keys() & declared() - used
    assert not NOT_IMPORTED.keys() & used
    assert NOT_IMPORTED.keys() <= declared()


def test_the_extra_all_names_every_extra_for_users() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    named = everything.removeprefix("capim[").removesuffix("]").split(",")
    assert set(named) == extras.keys() - {"all", "dev", "peers"}


def test_every_adapter_names_an_extra_that_exists() -> None:
    from capim.tasks.encoders import ADAPTERS

    extras = PROJECT["project"]["optional-dependencies"]
    for name, adapter in ADAPTERS.items():
        assert bool(adapter.requires) == bool(adapter.extra), name
        assert adapter.extra in extras or not adapter.extra, name


@pytest.mark.parametrize("extra", sorted(PROJECT["project"]["optional-dependencies"]))
def test_make_installs_every_extra(extra: str) -> None:
    pinned = {normalised(line) for line in (ROOT / "requirements.txt").read_text().splitlines()}
    wanted = {normalised(name) for name in PROJECT["project"]["optional-dependencies"][extra]} - {"capim"}
    assert wanted <= pinned

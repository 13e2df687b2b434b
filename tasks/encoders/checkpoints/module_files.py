"""The files that a user's Python file opens: weights, a vocabulary. They are part of the model's identity if named.

A module names them as a literal list, ``files = ["weights.pt"]``, with paths from its own folder; a suite can name them
in the encoder's table instead. The list is read without running the module.
"""

from __future__ import annotations

import ast
from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.checkpoints.checkpoint import PIN, local_path


def declared_files(path: Path) -> list[str] | None:
    """The files that a module names; None if it has no list ``files``.

    Raises:
        RequestError: It is not Python, or ``files`` is not a literal list of texts.
    """
    try:
        tree = ast.parse(path.read_bytes(), filename=str(path))
    except (SyntaxError, ValueError) as error:
        raise RequestError(f"{path} is not valid Python: {error}") from error
    for statement in reversed(tree.body):  # the last assignment counts
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            if any(isinstance(target, ast.Name) and target.id == "files" for target in targets):
                return _texts(statement.value, path)
    return None


def _texts(value: ast.expr | None, path: Path) -> list[str]:
    written = ast.unparse(value) if value is not None else "nothing"
    try:
        items = ast.literal_eval(written)
    except ValueError:
        items = None
    if isinstance(items, list | tuple) and all(isinstance(item, str) for item in items):
        return list(items)
    raise RequestError(f'{path}: files must be a literal list of file names, files = ["weights.pt"], got {written}')


def identity_gap(spec: EncoderSpec) -> str | None:
    """What the identity of a module may lack and what to do about it, in one line; None if nothing.

    Any other model is all the files of its folder or repository.
    """
    path = local_path(spec.checkpoint) if spec.adapter == "module" else None
    if path is None or any(name.startswith(PIN) for name in spec.options) or declared_files(path) is not None:
        return None
    return (
        f"encoder {spec.name!r}: its identity is {path.name} alone; if it opens other files, name them in it "
        '(files = ["weights.pt"]), so that embeddings are encoded again when they change'
    )

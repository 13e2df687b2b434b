"""Pages of the site that are made from the code while it is built, so that none can fall behind it (a MkDocs hook)."""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pyarrow as pa
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from rich.console import Console

from capim.flows.commands import COMMANDS, build_app
from capim.store import schema, sql

ROOT = Path(__file__).resolve().parents[2]
PYTHON = """# Python

::: capim
    options:
      filters: ["!^_"]
      group_by_category: false
      preload_modules: [capim.flows, capim.store, capim.tasks]
      show_if_no_docstring: true

## Steps

What the methods of a workspace with these names do, and their options.

::: capim.flows.steps
    options:
      members: [run, embed, evaluate, compare, report]

::: capim.flows.config
    options:
      members: [Where, Protocols, Encoding, Device, Scoring, Statistics, Seed, Comparing, Permutations]

::: capim.flows.workspace.Frame

::: capim.store.EmbeddingStore
"""
TABLES = """# Tables of the store

What `capim query "SELECT …"` reads, as the code declares it. Only columns that are marked can be null. `capim query
"SELECT * FROM current_results LIMIT 3"` shows rows, `capim query "DESCRIBE results"` the columns of one table.

The tables have the rows of every run, of every revision of an encoder and of every state of a corpus. The views
`current_…` have the newest of each, as `capim results` and reports show it; fingerprints tell the others apart.
"""
Comments = dict[tuple[str, str], str]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and those that stand beside the deployments."""
    pages = {
        "index.md": home(),
        **{f"assets/{file.name}": file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("*.js")},
        "reference/cli.md": command_line(),
        "reference/python.md": PYTHON,
        "reference/schema.md": tables(),
        "deployments.md": (ROOT / "deployments" / "README.md").read_text(encoding="utf-8"),
        "elsewhere.md": (ROOT / "deployments" / "elsewhere.md").read_text(encoding="utf-8"),
        **{f"{file.stem}.md": notebook(file) for file in (ROOT / "docs").glob("*.ipynb")},
    }
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def home() -> str:
    """Return README.md with its links as those of a page in docs/."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.sub(r"\]\((?!https?:|docs/(?!rooms))", "](../", text).replace("](docs/", "](")


def on_page_markdown(markdown: str, **_: object) -> str:
    """Return a page with its links into the repository, which the site does not hold, as plain text."""
    linked = markdown.replace("](../deployments/README.md)", "](deployments.md)")
    return re.sub(r"\[([^\]]+)\]\(\.\./[^)]+\)", r"\1", linked)


def on_page_content(html: str, **_: object) -> str:
    """Return a page without the roles of Sphinx, which Markdown shows as text."""
    return re.sub(r":(?:attr|class|data|exc|func|meth|mod):<code>~?", "<code>", html)


def command_line() -> str:
    """Return what ``--help`` prints for every command."""
    app, blocks = build_app(), ["# Command line\n"]
    for words in ("", *(name for commands in COMMANDS.values() for name in commands)):
        page = io.StringIO()
        app.help_print(words.split(), console=Console(file=page, width=100))
        blocks.append(f"## {f'capim {words}'.strip()}\n\n```text\n{page.getvalue()}```\n")
    return "\n".join(blocks)


def notebook(file: Path) -> str:
    """Return the cells of a notebook as Markdown, below its title a link to the file."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(file.read_bytes())["cells"]]
    texts = [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells]
    return "\n\n".join([texts[0], f"[This page as a notebook]({file.name})", *texts[1:]])


def tables() -> str:
    """Return the tables and views that a statement may read, with the comments beside their columns in the code."""
    comments = {**_comments(schema), **_comments(sql)}
    parts = [TABLES]
    for name in sql.known_tables():
        if name in sql.VIEWS:
            about = [f"A view:\n\n```sql\n{inspect.cleandoc(sql.VIEWS[name])}\n```"]
        elif name in sql.CURRENT:
            about = [f"The rows of {sql.CURRENT[name]} that reports show: of several for the same, one."]
        else:
            about = _table(name, comments)
        parts += [f"## {name}\n", *about, ""]
    return "\n".join(parts)


def _table(name: str, comments: Comments) -> list[str]:
    def row(field: pa.Field) -> str:
        said = next((comments[each, field.name] for each in declared if (each, field.name) in comments), "")
        return f"| `{field.name}` | {field.type} | {'yes' if field.nullable else ''} | {said} |"

    declared = (name, name.upper(), f"_{name.upper()}")  # a key of a table of tables, or a constant
    return ["| column | type | can be null | |", "|---|---|---|---|", *map(row, sql._schema_of(name))]


def _comments(module: ModuleType) -> Comments:
    """Declaration and column -> the comment in the line of the column, else that above it."""
    source = inspect.getsource(module)
    found: Comments = {}
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            declared = {statement.targets[0].id: statement.value}
            if isinstance(statement.value, ast.Dict):
                keys = [key.value for key in statement.value.keys if isinstance(key, ast.Constant)]
                declared = dict(zip(map(str, keys), statement.value.values, strict=False))
            for name, value in declared.items():
                found |= {(name, column): text for column, text in _columns(value, source.splitlines())}
    return found


def _columns(value: ast.expr, lines: list[str]) -> Iterator[tuple[str, str]]:
    for call in ast.walk(value):
        if isinstance(call, ast.Call) and getattr(call.func, "id", "") in {"required", "optional"}:
            text = lines[(call.end_lineno or call.lineno) - 1].partition("#")[2].strip()
            above: list[str] = []
            while not text and (line := lines[call.lineno - 2 - len(above)].strip()).startswith("#"):
                above.insert(0, line.lstrip("# "))
            for column in call.args[1:]:
                if isinstance(column, ast.Constant) and (text or above):
                    yield str(column.value), text or " ".join(above)

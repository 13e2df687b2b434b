"""Pages of the site that are made from the code while it is built, so that none can fall behind it (a MkDocs hook)."""

from __future__ import annotations

import ast
import inspect
import io
import json
import re
from dataclasses import MISSING, Field, fields
from pathlib import Path
from types import ModuleType

import pyarrow as pa
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from rich.console import Console

from capim.flows import config
from capim.flows.commands import COMMANDS, build_app
from capim.store import schema, sql
from capim.store.row_types import columns_of
from capim.tasks.corpora import CORPORA
from capim.tasks.encoders import catalog

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
"SELECT * FROM results LIMIT 3"` shows rows, `capim query "DESCRIBE results"` the columns of one table.

`results`, `outcomes`, `comparisons`, `rankings`, `slices`, `watched` and the parts of corpora have the newest of each
row, as `capim results` and reports show it. `all_results`, `all_outcomes` and so on have the rows of every run, of
every revision of an encoder and of every state of a corpus; fingerprints tell these apart.
"""
SUITE = """# Suite files and environment

A suite is a TOML file with the options of a run: `capim run FILE.toml`. An option of the command line replaces the key
of the same name. A table `[[encoder]]` is a model of your own ([own models](../own_model.md)), `[[corpus]]` a corpus
([own data](../own_data.md)).
"""
ENVIRONMENT = """## Environment

| variable | meaning |
|---|---|
| `CAPIM_WORKSPACE` | folder or URI of the store and the reports; default `./workspace` |
| `CAPIM_REPORTS_URL` | address under which browsers find the reports, for links in Prefect |
| `CAPIM_TASK_RUNNER` | task runner of flows: `threads:4`, `dask:2` ([deployments](../deployments.md)) |
| `CAPIM_TIMEOUT_HOURS` | time limit of a flow |
| `PREFECT_API_URL` | server of Prefect; without it, flows run as plain functions |
| `HF_HOME`, `HF_TOKEN`, `HF_HUB_OFFLINE` | cache, login and offline mode of the Hugging Face hub |
| `AWS_…`, `GOOGLE_…`, `AZURE_…` | credentials of object storage, as LanceDB reads them |
"""
Comments = dict[tuple[str, str], str]
PARTS = (schema.Image, schema.Caption, schema.Pair, schema.Quadruple, schema.Judgement, schema.Skipped)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made here, and those that stand beside the deployments."""
    pages = {
        "index.md": home(),
        **{f"assets/{file.name}": file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("*.js")},
        "reference/cli.md": command_line(),
        "reference/suite.md": suite(),
        "reference/catalogue.md": catalogue(),
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
    return re.sub(r"\]\((?!https?:|docs/(?!architecture))", "](../", text).replace("](docs/", "](")


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


def suite() -> str:
    """Return the options of a suite file, with their defaults, and the variables of the environment."""
    rows = [
        f"| `{each.name}` | {_default(each)} | {text} |"
        for each in fields(config.RunConfig)
        if (text := config.described(config.RunConfig).get(each.name))
    ]
    return "\n".join([SUITE, "| key | default | meaning |", "|---|---|---|", *rows, "", ENVIRONMENT])


def _default(field: Field[object]) -> str:
    if field.default_factory is not MISSING or field.default in ((), None, ""):
        return ""
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def catalogue() -> str:
    """Return the models and corpora that capim knows by name."""
    models = [
        f"| `{name}` | {each.spec.checkpoint} | {each.spec.vectors}, {each.spec.dim} | {each.licence or 'unknown'} |"
        for name, each in catalog().items()
    ]
    corpora = [f"| `{name}` | {entry.title} | {entry.size} | {entry.licence} |" for name, entry in CORPORA.items()]
    return "\n".join(
        [
            "# Models and corpora\n",
            "`capim list encoders` and `capim list corpora` say what each needs and whether it is available here.\n",
            "## Models\n\n| name | checkpoint | vectors, dimensions | licence |\n|---|---|---|---|",
            *models,
            "\n## Corpora\n\n| name | contents | size | licence |\n|---|---|---|---|",
            *corpora,
        ]
    )


def notebook(file: Path) -> str:
    """Return the cells of a notebook as Markdown, below its title a link to the file."""
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(file.read_bytes())["cells"]]
    texts = [text if kind == "markdown" else f"```python\n{text}\n```" for kind, text in cells]
    return "\n\n".join([texts[0], f"[This page as a notebook]({file.name})", *texts[1:]])


def tables() -> str:
    """Return the tables and views that a statement may read, with the comments about their columns in the code."""
    comments = {**_comments(schema), **_comments(sql)}
    parts = [TABLES]
    for name in sql.known_tables():
        if name in sql.VIEWS:
            about = [f"A view:\n\n```sql\n{inspect.cleandoc(sql.VIEWS[name])}\n```"]
        elif name in sql.ALL:
            about = [f"The rows of {sql.ALL[name]}, of all runs, revisions and states."]
        else:
            about = _table(name, comments)
        parts += [f"## {name}\n", *about, ""]
    return "\n".join(parts)


def _table(name: str, comments: Comments) -> list[str]:
    def row(field: pa.Field) -> str:
        said = next((comments[each, field.name] for each in types if (each, field.name) in comments), "")
        return f"| `{field.name}` | {field.type} | {'yes' if field.nullable else ''} | {said} |"

    types = [each.__name__ for of_row in _row_types(name) for each in of_row.__mro__]
    return ["| column | type | can be null | |", "|---|---|---|---|", *map(row, sql._schema_of(name))]


def _row_types(name: str) -> list[type]:
    if name in schema.CORPUS_PARTS:
        part = next(each for each in PARTS if columns_of(each) is schema.CORPUS_PARTS[name])
        return [sql.OfCorpus, part]
    return [sql.Embedding if name == "embeddings" else schema.TABLES[name].row]


def _comments(module: ModuleType) -> Comments:
    """Return row type and column -> the comment in the line of the column, else that above it."""
    source = inspect.getsource(module)
    lines = source.splitlines()
    found: Comments = {}
    for row_type in ast.parse(source).body:
        if isinstance(row_type, ast.ClassDef):
            for field in row_type.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                    text = lines[field.lineno - 1].partition("#")[2].strip()
                    above: list[str] = []
                    while not text and (line := lines[field.lineno - 2 - len(above)].strip()).startswith("#"):
                        above.insert(0, line.lstrip("# "))
                    if text or above:
                        found[row_type.name, field.target.id] = text or " ".join(above)
    return found

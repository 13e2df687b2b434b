"""Files that hold something else than their name says: each is a wrong request (exit code 2), and none hangs."""

from __future__ import annotations

import csv
import io
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from capim.flows.cli import main
from capim.flows.terminal import Form, Rows
from capim.reports.exports.tabular import csv_bytes
from capim.reports.render import escape_markdown
from capim.store import EmbeddingStore, EncoderSpec
from capim.store.errors import text_of_csv
from capim.store.files import write_row_file
from capim.store.sets import vector_files
from capim.store.sets.vector_files import read_npz
from capim.store.tables import read_row_file
from capim.tasks.metrics.judgements import Judgement, add_judgement, read_judgements
from tests.store.toy import make_corpus

VECTORS = np.ones((20, 4), np.float32)
Write = Callable[[Path], object]


def text(contents: str | bytes) -> Write:
    return lambda path: path.write_bytes(contents if isinstance(contents, bytes) else contents.encode())


def npy(values: Any) -> Write:
    return lambda path: np.save(path, values)


def npz(**arrays: Any) -> Write:
    return lambda path: np.savez(path, **arrays)


def parquet(**columns: Any) -> Write:
    return lambda path: pq.write_table(pa.table({"id": ["a"], **columns}), path)


def safetensors(dtype: str, ids: str) -> Write:
    about = {"embeddings": {"dtype": dtype, "shape": [1, 4], "data_offsets": [0, 16]}, "__metadata__": {"ids": ids}}
    header = json.dumps(about).encode()
    return text(len(header).to_bytes(8, "little") + header + bytes(16))


def folder(**files: str) -> Write:
    def write(path: Path) -> None:
        path.mkdir()
        for name, contents in files.items():
            (path / name.replace("_dot_", ".")).write_text(contents)

    return write


def bomb(path: Path) -> None:
    """A header of an array of 20 GB, and nothing after it."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (5_000_000, 1000)})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("embeddings.npy", header.getvalue())


IMPORTS: dict[str, Write] = {
    "no-array.npz": npz(),
    "offsets-2d.npz": npz(embeddings=VECTORS, offsets=np.zeros((2, 2), int)),
    "ids-2d.npz": npz(embeddings=VECTORS, ids=np.zeros((20, 2))),
    "norm-text.npz": npz(embeddings=VECTORS, norm=np.array(["x"] * 20)),
    "bomb.npz": bomb,
    "empty.npy": text(""),
    "scalar.npy": npy(np.float32(1)),
    "text.npy": npy(np.array(["a"])),
    "cut.npy": text(b"\x93NUMPY\x01\x00v\x00{"),
    "scalars.parquet": parquet(embedding=[1.0]),
    "texts.parquet": parquet(embedding=[["x"]]),
    "null.parquet": parquet(embedding=pa.array([None], pa.list_(pa.float32()))),
    "ids-number.safetensors": safetensors("F32", "7"),
    "ids-broken.safetensors": safetensors("F32", "{"),
    "blank.csv": text("\n\n"),
    "latin.csv": text(b"id,a\n\xe9,1\n"),
    "letters.csv": text("a,b\nc,d\n"),
    "pipe.npy": os.mkfifo,
    "folder.npy": Path.mkdir,
}
OUTCOMES: dict[str, Write] = {
    "deep.json": text("[" * 100_000),
    "number.json": text("3"),
    "blank.csv": text("\n\n"),
    "latin.csv": text(b"query,rank\n\xe9,1\n"),
    "pipe.json": os.mkfifo,
    "scalar.parquet": text("PAR1"),
}
SCORES: dict[str, Write] = {"empty.npy": text(""), "vector.npy": npy(np.zeros(0)), "pipe.npy": os.mkfifo}
RUNS: dict[str, Write] = {"latin.trec": text(b"\xe9 Q0 a 1 2 t\n"), "pipe.trec": os.mkfifo, "short.trec": text("a b\n")}
CORPORA: dict[str, Write] = {
    "saved-list": folder(dataset_dict_dot_json="[]"),
    "saved-numbers": folder(dataset_info_dot_json='{"features": 3}', state_dot_json='{"_data_files": 3}'),
    "no-rows": folder(captions_dot_json='{"images": 3, "annotations": []}'),
    "toml-number": folder(corpus_dot_toml="name = 5\nreader = 3\n"),
    "toml-nul": folder(corpus_dot_toml="\0"),
    "configs": folder(README_dot_md="---\nconfigs: 3\n---\n"),
    "a" * 5000: lambda path: None,
    "pipe.csv": os.mkfifo,
    "pipe.tar": os.mkfifo,
}
SUITES: dict[str, Write] = {
    "utf16.toml": text(b"\xff\xfea\x00"),
    "pipe.toml": os.mkfifo,
    **{
        f"{number}.toml": text(f'corpora = ["shapes"]\nencoders = ["tiny-clip"]\n{line}\n')
        for number, line in enumerate(("seed = 99999999999999999999", "level = nan", "margin = inf"))
    },
    "table.toml": text('encoders = ["tiny-clip"]\n[[corpus]]\nname = "s"\nreader = "shapes"\nn_scenes = -4\n'),
    "encoder.toml": text('corpora = ["shapes"]\n[[encoder]]\nname = 3\nadapter = 4\n'),
}
METRICS: dict[str, Write] = {
    "leaves.py": text("raise SystemExit(3)\n"),
    "number.py": text("f = 3\n"),
    "broken.py": text("def f(:\n"),
    "bytes.py": text(b"\xff\xfe\0"),
    "pipe.py": os.mkfifo,
}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a corpus of twenty images and an encoder, without embeddings."""
    path = tmp_path_factory.mktemp("malformed")
    store = EmbeddingStore.open(path / "store", create=True)
    store.write_corpus(make_corpus())
    store.write_encoder(EncoderSpec(name="enc", adapter="none", checkpoint="none", revision="r1", dim=4))
    return path


SOURCES: dict[tuple[str, ...], dict[str, Write]] = {
    ("import", "--encoder", "new", "--corpus", "toy", "--images", "{}"): IMPORTS,
    ("import", "--encoder", "new", "--corpus", "toy", "--outcomes", "{}"): OUTCOMES,
    ("import", "--encoder", "new", "--corpus", "toy", "--scores", "{}"): SCORES,
    ("import", "--encoder", "new", "--corpus", "toy", "--run", "{}"): RUNS,
    ("check", "{}"): CORPORA,
    ("run", "{}"): SUITES,
    ("evaluate", "--own-metric", "{}:f", "--corpora", "toy"): METRICS,
}
CASES = [
    *((words, name, make) for words, files in SOURCES.items() for name, make in files.items()),
    (("search", "--encoder", "enc", "--corpus", "toy", "--image", "{}"), "pipe.png", os.mkfifo),
    (("search", "--encoder", "enc", "--corpus", "toy", "--vector", "{}"), "pipe.npy", os.mkfifo),
    (("search", "--encoder", "enc", "--corpus", "toy", "--vector", "{}"), "empty.npy", text("")),
    (("query", "SELECT * FROM test_all_types()"), "unused", Path.mkdir),
    (("search", "--encoder", "enc", "--corpus", "toy", "\ud800"), "unused", Path.mkdir),
    (("evaluate", "--own-metric", ""), "unused", Path.mkdir),
    (("store", "info", "--workspace", "{}"), "file", text("")),
    (("store", "info", "--workspace", "/tmp/\x1b[31m"), "unused", Path.mkdir),
    (("export", "embeddings", "--encoder", "enc", "--corpus", "toy", "--to", "{}"), "folder.npy", Path.mkdir),
]


@pytest.mark.parametrize(("words", "name", "make"), CASES, ids=[f"{words[0]}-{name[:30]}" for words, name, _ in CASES])
def test_a_malformed_input_is_a_wrong_request(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], name: str, make: Write
) -> None:
    make(tmp_path / name)
    given = [word.replace("{}", str(tmp_path / name)) for word in words]
    place = [] if words[0] == "check" or words[:2] == ("store", "info") else ["--workspace", str(workspace)]
    assert main([*given, *place]) == 2
    message = capsys.readouterr().err
    assert "unexpected" not in message
    assert len(message) < 6000


def test_arrays_that_expand_a_thousand_times_are_not_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed(tmp_path / "zeros.npz", embeddings=np.zeros((1000, 1000), np.float32))
    assert len(read_npz(tmp_path / "zeros.npz")["embeddings"]) == 1000  # small
    monkeypatch.setattr(vector_files, "_SMALL", 1 << 20)
    with pytest.raises(ValueError, match="would expand to 4,000,000"):
        read_npz(tmp_path / "zeros.npz")


def test_formulas_of_captions_reach_no_spreadsheet_and_come_back_as_they_were(tmp_path: Path) -> None:
    texts = [{"text": text} for text in ("=cmd|' /C calc'!A0", "@SUM(1)", "'-quoted")]
    write_row_file(tmp_path / "rows.csv", pa.Table.from_pylist(texts))
    assert read_row_file(tmp_path / "rows.csv") == texts
    judgement = Judgement("c", "t2i", "=1+1", "-1")
    add_judgement(tmp_path / "judgements.csv", judgement)
    assert (tmp_path / "judgements.csv").read_text().splitlines()[1] == "c,t2i,'=1+1,-1"
    assert read_judgements(tmp_path / "judgements.csv") == [judgement]


def test_a_cell_that_is_too_long_is_no_unclosed_quote(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "captions.csv").write_text(f"image,caption\na.png,{'word ' * 200_000}\n")
    assert main(["check", str(tmp_path)]) == 2
    assert "captions.csv: line 2: a cell has more than 131,072 characters" in capsys.readouterr().out


FORMULAS = ("=1", "+a", "-a", "@a", "\ta", "\ra", " =1", "'=1", "\uff1d1")
TEXTS = ("a\r=1", "a=b", "-0.5", "+1e3", "'a'", "")


def test_pages_and_exports_write_csv_as_the_command_line_does() -> None:
    rows: list[dict[str, Any]] = [{"=text": text, "n": -1.5, "list": ["a"]} for text in (*FORMULAS, *TEXTS)]
    out = io.StringIO()
    Rows(rows=rows).print(Form(format="csv"), out)
    assert csv_bytes(rows).decode() == out.getvalue()
    header, *written = csv.reader(io.StringIO(out.getvalue(), newline=""))
    assert header == ["'=text", "n", "list"]
    assert written == [[text, "-1.5", '["a"]'] for text in (*(f"'{text}" for text in FORMULAS), *TEXTS)]
    assert [text_of_csv(row[0]) for row in written] == [*FORMULAS, *TEXTS]


def test_control_characters_reach_neither_the_terminal_nor_markdown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "/tmp/\x1b[31mnowhere"]) == 2
    assert "\x1b" not in capsys.readouterr().err
    assert "\x1b" not in escape_markdown("a\x1b[31m")
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    Rows(rows=[{"text": "a\x1b[31m\x9b"}]).print(Form(format="csv"), terminal)
    assert not {"\x1b", "\x9b"} & {*terminal.getvalue()}


def test_a_caption_of_a_hundred_thousand_characters_is_not_shown_whole() -> None:
    out = io.StringIO()
    Rows(rows=[{"text": "a" * 100_000}]).print(Form(format="table"), out)
    assert "99,600 more characters" in out.getvalue()
    assert len(out.getvalue()) < 2000
    out = io.StringIO()
    Rows(rows=[{"text": "a" * 100_000}]).print(Form(format="json"), out)
    assert "a" * 100_000 in out.getvalue()

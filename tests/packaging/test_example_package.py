"""A package beside capim adds an encoder, corpus, protocol, metric and section; a broken one breaks nothing else."""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from PIL import Image

from capim.store import EmbeddingStore
from capim.store.errors import RequestError, WorkError
from capim.store.schema import Result, Slice
from capim.tasks.analyses.analysis import AnalysisInput
from capim.tasks.analyses.table import ANALYSES
from capim.tasks.contract import check_analysis, check_corpus, check_metric
from capim.tasks.corpora import CORPORA
from capim.tasks.corpora.description import open_corpus
from capim.tasks.encoders import ADAPTERS, resolve, spec_of
from capim.tasks.encoders.catalog import entry_of
from capim.tasks.metrics import METRICS
from capim.tasks.ranking.outcomes import outcomes_of
from tests.command import command, json_rows
from tests.packaging.conftest import Packages, forget
from tests.reports.pages import readable

# A package that nobody can use: its module fails, one name is ours, one object is none.
BROKEN = {
    "capim.adapters": "hf_dual = broken_rows:ADAPTER",
    "capim.corpora": "none = json:dumps",
    "capim.metrics": "failing = broken_rows:METRIC\ncrashing = broken_metric:METRIC",
    "capim.analyses": "failing = broken_analysis:ANALYSIS",
    "capim.sections": "failing = broken_section:section",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example package as its installer leaves it."""
    source = shutil.copytree(Path(__file__).with_name("example_package"), tmp_path_factory.mktemp("source") / "package")
    folder = tmp_path_factory.mktemp("site")
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    offline = ["--offline", "--no-deps", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([uv, "pip", "install", "--quiet", *offline, "--target", str(folder), str(source)], check=True)
    return folder


@pytest.fixture
def installed(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The example package on the path of this process."""
    monkeypatch.syspath_prepend(str(site))
    forget()
    yield site
    monkeypatch.undo()
    forget("capim_swatches")


@pytest.fixture
def broken(packages: Packages) -> None:
    """A package whose every entry point is at fault."""
    packages(
        "capim-broken",
        "2.0",
        BROKEN,
        broken_rows="raise OSError('no licence')\n",
        broken_metric="from capim.tasks.metrics import METRICS, Metric\n"
        "both = METRICS['R@1'].directions\n"
        "METRIC = Metric(name='crashing', title='t', directions=both, values=lambda o, t: o.nothing)\n",
        broken_analysis="from capim.tasks.analyses.table import Analysis\n"
        "ANALYSIS = Analysis('failing', lambda data: data.nothing, {'failing': 'Failing'}, on_request=True)\n",
        broken_section="def section(data):\n    return data['nothing']\n",
    )


def listed(what: str) -> dict[str, dict[str, object]]:
    return {row["name"]: row for row in json_rows(f"list {what}")}


def test_the_lists_show_the_rows_of_a_package_with_its_name(installed) -> None:
    for what, name in (
        ("adapters", "swatches"), ("encoders", "swatch"), ("corpora", "swatches"), ("metrics", "left_behind"),
        ("analyses", "warmth"),
    ):  # fmt: skip
        rows = listed(what)
        assert rows[name]["package"] == "capim-swatches 0.1.0"
        assert {row["package"] for row in rows.values()} == {"capim", "capim-swatches 0.1.0"}


def test_names_are_known_without_importing_the_package(installed) -> None:
    assert "left_behind" in METRICS
    assert "swatches" in [*ADAPTERS, *CORPORA]
    assert spec_of("tiny-clip").adapter == "hf_dual"
    assert "capim_swatches" not in sys.modules
    assert METRICS["left_behind"].title
    assert "capim_swatches" in sys.modules


def test_the_version_of_the_package_is_part_of_the_identity_of_its_encoders(installed, monkeypatch) -> None:
    first = resolve(spec_of("swatch"))
    assert (first.revision, first.options) == ("capim-swatches-0.1.0", {"revision:capim-swatches": "0.1.0"})
    info = installed / "capim_swatches-0.1.0.dist-info" / "METADATA"
    before = info.read_text()
    try:
        info.write_text(before.replace("0.1.0", "0.2.0"))
        forget()
        assert resolve(spec_of("swatch")).fingerprint != first.fingerprint
        with pytest.raises(RequestError, match=r"was made with capim-swatches 0\.1\.0, but 0\.2\.0 is here"):
            resolve(first)
    finally:
        info.write_text(before)


def test_a_run_with_a_package_evaluates_its_metric_runs_its_analysis_and_reports_its_section(
    installed, tmp_path
) -> None:
    """Also on a sample of another corpus by several metrics: two tables had one anchor, and no report was written."""
    words = "run --corpora swatches,shapes --sample 30 --encoders swatch --replicates 100 --device cpu --quiet"
    printed = command(words, tmp_path)
    store = EmbeddingStore.open(tmp_path / "store")
    rows = store.all(Result, metric="left_behind", corpus="swatches")
    assert {(row.encoder, row.protocol): row.value for row in rows} == {
        ("swatch", "t2i/all"): 1.0, ("swatch", "i2t/any"): 1.0, ("swatch", "t2i/warm"): 1.0,
    }  # fmt: skip
    assert {row.n_queries for row in rows if row.protocol == "t2i/warm"} == {2}
    slices = store.all(Slice, analysis="warmth")
    of_swatches = [row for row in slices if row.corpus == "swatches"]
    assert {(row.protocol, row.feature, row.value, row.analysis_version) for row in of_swatches} == {
        ("t2i/all", part, 1.0, "1 of capim-swatches 0.1.0") for part in ("warm", "cold")
    }  # fmt: skip
    page = readable(printed.page.read_text())
    assert "text to image, warm" in page
    assert "Warm and cold colours (capim-swatches 0.1.0) · swatches" in page
    assert "swatches · items left behind (left_behind)" in page
    assert "Items left behind" in page
    assert "swatch on swatches, t2i/all: 1.00" in page
    metrics = {row.metric for row in slices}
    assert len(metrics) > 1
    page = readable(command("report", tmp_path).page.read_text())
    assert page.count("Warm and cold colours (capim-swatches 0.1.0) · shapes-sample30") >= len(metrics)
    assert "Warm and cold colours (capim-swatches 0.1.0) · swatches" in page


def test_a_package_checks_its_own_rows_without_a_checkout_of_capim(installed) -> None:
    rows = importlib.import_module("capim_swatches")
    check_metric(rows.LEFT_BEHIND)
    corpus = check_corpus(rows.read_swatches)
    assert {each.feature for each in check_analysis(rows.WARMTH, corpus)} == {"warm", "cold"}
    with pytest.raises(AssertionError, match="it has no licence"):
        check_corpus(lambda: replace(corpus, licence=""))


TILES = """
from pathlib import Path
from typing import cast

from capim.tasks.corpora import CorpusEntry
from capim.tasks.corpora.build import CaptionRow, ImageRow, build_corpus
from capim.tasks.encoders import Adapter

ADAPTER = Adapter(title="counts of colours", options=("bins",))
CORPUS = CorpusEntry(title="Tiles", size="1 image", licence="CC0-1.0")
TABLE = CorpusEntry(
    title="Tiles of a table", size="2 images", licence="CC0-1.0",
    table={"file": "tiles.jsonl", "columns": {"image": "file", "caption": "text"}, "images": "images", "hint": "here"},
)


def read_tiles(root: Path):
    captions = [CaptionRow("c", "a", f"a tile of {root.name}")]
    return build_corpus("tiles", [ImageRow("a", "a.png")], captions, source=None)
"""
TILE_ROWS = {
    "capim.adapters": "binned = tiles_package:ADAPTER",
    "capim.corpora": "tiles = tiles_package:CORPUS\ntiled = tiles_package:TABLE",
}


def test_a_reader_of_a_package_may_take_a_path(packages: Packages, tmp_path: Path) -> None:
    packages("capim-tiles", "1.0", TILE_ROWS, tiles_package=TILES)
    corpus = open_corpus({"reader": "tiles", "root": str(tmp_path / "blue")})
    assert corpus.captions["text"].to_pylist() == ["a tile of blue"]


def test_a_table_that_names_no_column_of_ids_has_the_images_for_them(packages: Packages, tmp_path: Path) -> None:
    packages("capim-tiles", "1.0", TILE_ROWS, tiles_package=TILES)
    (tmp_path / "images").mkdir()
    for name in ("one", "two"):
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / f"{name}.png")
    lines = [json.dumps({"file": f"{name}.png", "text": f"tile {name}"}) for name in ("one", "two")]
    (tmp_path / "tiles.jsonl").write_text("\n".join(lines))
    corpus = open_corpus({"reader": "tiled", "root": str(tmp_path)})
    assert corpus.images["id"].to_pylist() == ["one", "two"]
    assert corpus.captions["text"].to_pylist() == ["tile one", "tile two"]


def test_a_wrong_option_of_an_adapter_is_the_only_fault_that_is_named(packages: Packages) -> None:
    packages("capim-tiles", "1.0", TILE_ROWS, tiles_package=TILES)
    row = {"name": "x", "adapter": "binned", "dim": 3, "licence": "CC0-1.0", "options": {"bims": 4}}
    with pytest.raises(RequestError) as raised:
        entry_of(row)
    assert "bins" in str(raised.value)
    assert "missing" not in str(raised.value)


def test_a_list_of_metrics_names_the_function_of_an_aggregate(packages: Packages) -> None:
    metric = """
import numpy as np
from capim.tasks.metrics import Metric

def iqr(values):
    return float(np.subtract(*np.percentile(values, [75, 25])))

METRIC = Metric(name="spread", title="t", directions=frozenset({"t2i"}), values=lambda o, t: o.rank_best, reduce=iqr)
"""
    packages("capim-spread", "1.0", {"capim.metrics": "spread = spread_metric:METRIC"}, spread_metric=metric)
    assert (listed("metrics")["spread"]["reduce"], listed("metrics")["R@1"]["reduce"]) == ("iqr", "mean")


FAILING = """
import numpy as np
from capim.tasks.encoders import Adapter

ROW = {"dim": 4, "title": "Fails", "licence": "CC0-1.0", "parameters": 0, "image_batch": 16, "caption_batch": 16}
ADAPTER = Adapter(title="fails in the middle", options=(), encoders={"failing": ROW})


class Failing:
    n = 0

    def encode_images(self, images):
        return np.ones((len(images), 4))

    def encode_captions(self, texts):
        self.n += len(texts)
        if self.n > 60:
            raise ValueError("no such word")
        return np.ones((len(texts), 4))


def load(spec, *, device, trust_remote_code):
    return Failing()
"""


def test_a_model_that_fails_in_the_middle_names_the_batch_and_what_is_stored(packages: Packages, tmp_path) -> None:
    packages("capim-failing", "1.0", {"capim.adapters": "failing = failing_model:ADAPTER"}, failing_model=FAILING)
    words = "embed --corpora shapes --encoders failing --device cpu --quiet"
    said = " ".join(command(words, tmp_path, code=1).err.split())
    where = r"ValueError: no such word, in the batch from '\S+' to '\S+'; \d+ of 1500 are stored"
    assert re.search(where, said), said


def test_a_broken_package_is_one_line_that_names_it_and_all_else_works(broken, caplog) -> None:
    for what in ("adapters", "corpora"):
        assert {row["package"] for row in listed(what).values()} == {"capim"}
    assert "failing" not in listed("metrics")
    lines = [record.getMessage() for record in caplog.records]
    package = "package capim-broken 2.0, entry point"
    remedy = "update the package, or remove it with: pip uninstall capim-broken"
    wanted = "TypeError: expected a capim.tasks.corpora.CorpusEntry, got function"
    assert tuple(lines) == (
        f"{package} 'hf_dual' of capim.adapters: the name is taken by capim; the row is left out",
        f"{package} 'none' of capim.corpora: json:dumps cannot be used ({wanted}); {remedy}",
        f"{package} 'failing' of capim.metrics: broken_rows:METRIC cannot be used (OSError: no licence); {remedy}",
    )
    assert f"{package} 'none'" in command("check none", code=2).out


def test_a_metric_and_an_analysis_that_fail_name_their_package(broken) -> None:
    package = r"package capim-broken 2.0, entry point"
    with pytest.raises(WorkError, match=rf"{package} 'crashing' .*: the metric failed \(Attr"):
        METRICS["crashing"].per_query(outcomes_of([[1], [3]]))
    with pytest.raises(WorkError, match=rf"{package} 'failing' .*: the analysis failed \(Attr"):
        list(ANALYSES["failing"].run(cast("AnalysisInput", None)))


def test_packages_are_looked_for_only_when_a_name_is_not_one_of_capims(monkeypatch) -> None:
    def refuse(**_: str) -> None:
        raise AssertionError("looked for packages")

    forget()
    monkeypatch.setattr("capim.store.plugins.entry_points", refuse)
    for words in ("--help", "list --help", "run --help"):
        command(words)
    assert METRICS["R@1"].title
    assert CORPORA["shapes"].title
    assert resolve(spec_of("tiny-clip")).resolved
    with pytest.raises(AssertionError, match="looked for packages"):
        spec_of("tiny-clap")


def test_a_section_that_fails_is_left_out_of_the_report(broken, caplog) -> None:
    from capim.reports.rows.reading import read_report_data
    from capim.reports.write import report_of
    from tests.reports.stand_in import demo

    assert len(report_of(read_report_data(demo())).sections) > 5
    [line] = [said for record in caplog.records if "capim.sections" in (said := record.getMessage())]
    assert "'failing' of capim.sections: the report is made without this section (TypeError:" in line

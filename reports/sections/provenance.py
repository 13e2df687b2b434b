"""What was run on what: enough to make every number again."""

from __future__ import annotations

import json
import shlex
from collections import Counter

from reports import format as show
from reports.elements.page import Block, Cell, Column, Section, Table, Text
from reports.rows.report_data import Evidence

USUAL_LEVEL = 0.95  # of intervals, where a command does not say


def section(evidence: Evidence) -> Section:
    """Corpora, encoders, sealed sets, runs, and what was left out."""
    blocks: list[Block] = [_corpora(evidence), _encoders(evidence)]
    blocks += [table for table in (_sets(evidence), _runs(evidence), _configurations(evidence)) if table.rows]
    blocks.append(_commands(evidence))
    versions = _versions(evidence)
    if versions is not None:
        blocks.append(versions)
    if evidence.left_out:
        blocks.append(Text(text=f"Left out of this report: {'; '.join(evidence.left_out)}."))
    return Section(
        id="provenance",
        title="What was run on what",
        lead=f"Every figure comes from rows of the store {evidence.uri}; digest of the rows {evidence.digest[:16]}.",
        blocks=tuple(blocks),
    )


def skips(evidence: Evidence) -> Section | None:
    """Images that could not be used, with the reason; None if all could."""
    rows = [
        (Cell(text=name), Cell(text=row["image_id"]), Cell(text=row["reason"]))
        for name, corpus in sorted(evidence.corpora.items())
        for row in corpus.skipped.to_pylist()
    ]
    if not rows:
        return None
    per_corpus = Counter(row[0].text for row in rows)
    return Section(
        id="skipped",
        title="Skipped images",
        lead="; ".join(
            f"{show.count(n, 'image')} of {name} could not be used and took no part in any figure"
            for name, n in sorted(per_corpus.items())
        )
        + ".",
        blocks=(
            Table(
                id="skipped-images",
                caption="Images left out, and why" + (f" (first {LONGEST:,} shown)" if len(rows) > LONGEST else ""),
                columns=(Column(heading="Corpus"), Column(heading="Image"), Column(heading="Reason")),
                rows=tuple(rows[:LONGEST]),
            ),
        ),
    )


LONGEST = 200


def _corpora(evidence: Evidence) -> Table:
    return Table(
        id="corpora",
        caption="Corpora",
        columns=(
            Column(heading="Corpus"),
            Column(heading="Images", numeric=True),
            Column(heading="Captions", numeric=True),
            Column(heading="Languages"),
            Column(heading="Skipped", numeric=True),
            Column(heading="Licence"),
            Column(heading="Origin"),
            Column(heading="Fingerprint"),
        ),
        rows=tuple(
            (
                Cell(text=name),
                Cell(text=show.number(corpus.images.num_rows, 0)),
                Cell(text=show.number(corpus.captions.num_rows, 0)),
                Cell(text=", ".join(sorted(set(corpus.captions["language"].to_pylist())))),
                Cell(text=show.number(corpus.skipped.num_rows, 0)),
                Cell(text=corpus.licence),
                Cell(text=corpus.origin or show.ABSENT),
                Cell(text=corpus.fingerprint),
            )
            for name, corpus in sorted(evidence.corpora.items())
        ),
    )


def _encoders(evidence: Evidence) -> Table:
    return Table(
        id="encoders",
        caption="Encoders",
        columns=tuple(
            Column(heading=h, numeric=h == "Dim")
            for h in (
                "Encoder",
                "Checkpoint",
                "Revision",
                "Adapter",
                "Vectors",
                "Dim",
                "Precision",
                "Options",
                "Fingerprint",
            )
        ),
        rows=tuple(
            (
                Cell(text=name),
                Cell(text=spec.checkpoint),
                Cell(text=spec.revision[:16], title=spec.revision),
                Cell(text=f"{spec.adapter} v{spec.adapter_version}"),
                Cell(text=spec.vectors),
                Cell(text=str(spec.dim)),
                Cell(text=f"{spec.precision}, stored {spec.storage}"),
                Cell(text=", ".join(f"{k}={v}" for k, v in sorted(spec.options.items())) or show.ABSENT),
                Cell(text=spec.fingerprint),
            )
            for name, spec in sorted(evidence.specs.items())
        ),
    )


def _sets(evidence: Evidence) -> Table:
    return Table(
        id="sets",
        caption="Sealed embedding sets",
        columns=tuple(
            Column(heading=h, numeric=h in ("Rows", "Size", "Version"))
            for h in ("Encoder", "Corpus", "Of", "Rows", "Size", "Version", "Tag", "Digest")
        ),
        rows=tuple(
            (
                Cell(text=s.key.encoder),
                Cell(text=s.key.corpus),
                Cell(text=f"{s.key.modality}s"),
                Cell(text=show.number(s.n_rows, 0)),
                Cell(text=show.size(s.n_bytes), sort=show.exact(s.n_bytes)),
                Cell(text=str(s.version)),
                Cell(text=s.tag),
                Cell(text=s.digest[:16], title=s.digest),
            )
            for s in evidence.sets
        ),
    )


def _runs(evidence: Evidence) -> Table:
    return Table(
        id="runs",
        caption="Runs, and the commands that make these numbers again",
        columns=tuple(Column(heading=h) for h in ("Run", "Started", "Took", "State", "Host", "Command")),
        rows=tuple(
            (
                Cell(text=r["name"], title=r["run"]),
                Cell(text=show.moment(r["started"])),
                Cell(text=show.took(r["started"], r["finished"])),
                Cell(text=r["state"], title=r["message"] or ""),
                Cell(text=r["host"]),
                Cell(text=r["command"]),
            )
            for r in evidence.runs
        ),
    )


def _configurations(evidence: Evidence) -> Table:
    return Table(
        id="configurations",
        caption="Settings of the runs",
        columns=(Column(heading="Run"), Column(heading="setting"), Column(heading="value")),
        rows=tuple(
            (Cell(text=r["name"], title=r["run"]), Cell(text=setting), Cell(text=_setting(value)))
            for r in evidence.runs
            for setting, value in sorted(json.loads(r["config"] or "{}").items())
        ),
        folded="Settings of the runs",
    )


def _setting(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else show.ABSENT if value is None else str(value)


def _commands(evidence: Evidence) -> Table:
    """Per corpus and protocol the command that computes its figures again from the same embeddings."""
    rows = []
    for corpus in sorted(evidence.corpora):
        for protocol in evidence.protocols(corpus):
            found = evidence.of(corpus, protocol)
            options = {
                "corpora": corpus,
                "encoders": ",".join(sorted({row["encoder"] for row in found})),
                "protocols": _asked_for(protocol),
                **{name: found[0][name] for name in ("replicates", "seed")},
                "level": "" if found[0]["level"] == USUAL_LEVEL else found[0]["level"],
                "interval": "bca" if any(row["interval_method"] == "bca" for row in found) else "",
            }
            words = [word for name, value in options.items() if value != "" for word in (f"--{name}", str(value))]
            command = shlex.join(["capim", "evaluate", *words])
            rows.append((Cell(text=corpus), Cell(text=protocol), Cell(text=command)))
    return Table(
        id="commands",
        caption="The figures of each protocol, made again from the stored embeddings",
        columns=(Column(heading="Corpus"), Column(heading="protocol"), Column(heading="command")),
        rows=tuple(rows),
        folded="How to make the figures of each protocol again",
        note="A corpus that is a folder of your own is named here as the store names it; give its path instead.",
    )


def _asked_for(protocol: str) -> str:
    """What ``--protocols`` must name for a figure of this protocol; empty, which is all, for means over languages.

    Examples:
        >>> _asked_for("t2i/all+i2t/any"), _asked_for("i2t/any@image-as-query"), _asked_for("t2i/*/*@without-en")
        ('t2i/all,i2t/any', 'i2t/any@image-as-query', '')
    """
    return "" if "*" in protocol else protocol.replace("+", ",")


def _versions(evidence: Evidence) -> Table | None:
    """Library versions and devices of the batches and runs; one column per different set of versions."""
    found: dict[str, dict[str, str]] = {}
    for row in evidence.runs:
        found.setdefault(row["versions"], json.loads(row["versions"]) if row["versions"] else {})
    for row in evidence.batches:
        found.setdefault(row["versions"], json.loads(row["versions"]) if row["versions"] else {})
    merged: dict[str, set[str]] = {}
    for versions in found.values():
        for library, version in versions.items():
            merged.setdefault(library, set()).add(str(version))
    if not merged:
        return None
    return Table(
        id="versions",
        caption="Libraries",
        columns=(Column(heading="Library"), Column(heading="Version")),
        rows=tuple((Cell(text=name), Cell(text=", ".join(sorted(merged[name])))) for name in sorted(merged)),
    )

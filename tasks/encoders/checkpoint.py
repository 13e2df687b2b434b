"""Location of the files of a model: this package, a folder, or a hub repository at one commit.

A checkpoint is named by a spec: a folder, ``package:NAME``, a hub repository, one of open_clip's own names
``architecture/tag``, or a file of weights for one of them, ``ViT-B-32@/path/epoch_3.pt``. Other repositories that it
needs (a base model, a tokenizer, code) are pinned to a commit too: ``resolve`` writes it into the spec's options as
``revision:<repository>``, and loading reads it there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

from capim.store.errors import RequestError, unknown
from capim.store.types import EncoderSpec, is_commit
from capim.tasks.encoders.adapters import PIN, adapter_named, pins_of, require_libraries
from capim.tasks.encoders.adapters.recognition import ReadJson
from capim.tasks.hub import folder_at, hub_json, to_download

PACKAGE = Path(__file__).parent
_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")
# only a checkpoint of this form is worth importing open_clip, which takes seconds
_OPEN_CLIP_NAME = re.compile(r"(?P<architecture>[A-Za-z0-9.-]+)/(?P<tag>[a-z0-9_.-]+)")
_OPEN_CLIP_FILE = re.compile(
    r"(?P<architecture>[A-Za-z0-9.-]+)(/(?P<tag>[a-z0-9_.-]+))?@(?P<file>[^#]+)(#(?P<key>.+))?"
)
OPEN_CLIP_FORMS = (
    "hf-hub:OWNER/NAME or a folder with open_clip_config.json, ARCHITECTURE/TAG (ViT-B-32/openai), or a file of "
    "weights with its architecture (ViT-B-32@/path/epoch_3.pt)"
)
_HEAVY = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".msgpack", ".ot", ".onnx", ".onnx_data", ".gguf", ".tflite",
    ".mlmodel", ".npz", ".tar", ".zip",
)  # fmt: skip
_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tekken.json")
_OWN_CODE = 'if you saved it yourself, call save_pretrained, or load it in code of your own (adapter = "module")'


def repository_of(checkpoint: str) -> str:
    """Return a checkpoint without open_clip's scheme.

    Examples:
        >>> repository_of("hf-hub:apple/DFN5B-CLIP-ViT-H-14-378")
        'apple/DFN5B-CLIP-ViT-H-14-378'
    """
    return checkpoint.removeprefix("hf-hub:").removeprefix("local-dir:")


def local_path(checkpoint: str) -> Path | None:
    """Return the folder or file that a checkpoint names on this machine; None if it names a hub repository.

    Raises:
        RequestError: If it looks like a path, but does not exist.
    """
    checkpoint = repository_of(checkpoint)
    in_package = checkpoint.startswith("package:")
    path = PACKAGE / checkpoint.removeprefix("package:") if in_package else Path(checkpoint).expanduser()
    if path.exists():
        return path
    if _HUB_ID.fullmatch(checkpoint) and not checkpoint.endswith(".py"):
        return None
    if form := _OPEN_CLIP_FILE.fullmatch(checkpoint):
        path = Path(form["file"]).expanduser()
        if path.is_file():
            return path
    raise RequestError(f"checkpoint {checkpoint!r} does not exist ({path.absolute()})")


def digest_of(path: Path) -> str:
    """Return ``sha256-`` and 16 hexadecimal digits over the names and contents of a folder's files, or over one file.

    Links are followed; hidden files and ``__pycache__`` do not count.
    """
    files = [path] if path.is_file() else sorted(_files_in(path))
    if not files:
        raise RequestError(f"checkpoint folder {path} is empty")
    total = hashlib.sha256()
    for file in files:
        total.update(file.relative_to(path).as_posix().encode() if file != path else b"")
        with file.open("rb") as stream:
            total.update(hashlib.file_digest(stream, "sha256").digest())
    return f"sha256-{total.hexdigest()[:16]}"


def _files_in(folder: Path, above: frozenset[Path] = frozenset()) -> Iterator[Path]:
    """Yield the files of a folder and its subfolders; ``above`` are its parent folders, which a link may name."""
    here = folder.resolve()
    for entry in folder.iterdir() if here not in above else ():
        if entry.name.startswith(".") or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _files_in(entry, above | {here})
        elif entry.is_file():
            yield entry


def json_file(file: Path) -> dict[str, Any]:
    """Return the contents of a JSON file, empty if there is no such file."""
    contents: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return contents


def json_reader(checkpoint: str, commit: str) -> ReadJson:
    """Return a reader of the JSON files of a folder, or of a hub repository at a commit."""
    path = local_path(checkpoint)
    return lambda name: hub_json(repository_of(checkpoint), commit, name) if path is None else json_file(path / name)


def folder_of(spec: EncoderSpec) -> Path:
    """Return the folder (or weights file) with the files of a resolved spec, downloaded from the hub if necessary."""
    if path := local_path(spec.checkpoint):
        return path
    repository, weights = source_of(spec)
    return snapshot(repository, spec.revision, weights)


def source_of(spec: EncoderSpec) -> tuple[str, tuple[str, ...]]:
    """Return the hub repository of a spec's weights, and the patterns of their files in order of preference."""
    if tag := open_clip_tag(spec):
        return tag.repository, tag.weights
    return repository_of(spec.checkpoint), adapter_named(spec.adapter).weights


def related_folder(spec: EncoderSpec, repository: str, weights: Sequence[str] = ()) -> Path:
    """Return the folder of another repository of a resolved spec, at its pinned commit, downloaded if necessary.

    ``weights`` are patterns of its weights; empty if only its configuration or code is needed.
    """
    return local_path(repository) or snapshot(repository, str(spec.options[PIN + repository]), weights)


def base_folder(spec: EncoderSpec, folder: Path) -> Path | None:
    """Return the folder of the base model of a LoRA checkpoint; None for a complete checkpoint."""
    base = json_file(folder / "adapter_config.json").get("base_model_name_or_path")
    return related_folder(spec, str(base), adapter_named(spec.adapter).weights) if base else None


def related_repositories(adapter: str, read: ReadJson) -> list[str]:
    """Return the other repositories (or local folders) that a checkpoint of an adapter names, without duplicates.

    Examples:
        >>> files = {"adapter_config.json": {"base_model_name_or_path": "vidore/base"}}
        >>> related_repositories("colvision", lambda name: files.get(name, {}))
        ['vidore/base']
    """
    known = adapter_named(adapter)
    base = [read("adapter_config.json").get("base_model_name_or_path")] if known.lora else []
    return list(dict.fromkeys(name for name in (*base, *known.related(read)) if name))


@dataclass(frozen=True, kw_only=True)
class OpenClipTag:
    """A model that open_clip knows by name, with its published weights or with those of a user's training run.

    Attributes:
        architecture: Name of a built-in configuration.
        config: The built-in configuration.
        repository: The hub repository of the weights; empty if only a file of the user has them.
        weights: Possible names of the file of the weights, in order of preference.
        preprocess: Mean, standard deviation, interpolation and resize mode of the tag; open_clip's own without a tag.
        key: Name of the weights in the user's file, if it holds several, such as a moving average (EMA).
    """

    architecture: str
    config: Mapping[str, Any]
    repository: str
    weights: tuple[str, ...]
    preprocess: Mapping[str, Any]
    key: str

    def read(self, name: str) -> Mapping[str, Any]:
        """Return the configuration in the form of a repository's ``open_clip_config.json``."""
        return {"model_cfg": self.config} if name == "open_clip_config.json" else {}


def open_clip_tag(spec: EncoderSpec) -> OpenClipTag | None:
    """Return open_clip's facts about a spec's checkpoint; None for a repository, a folder or another adapter.

    Raises:
        RequestError: If the tag or the architecture of a file is unknown, if there is no such file, or if open_clip is
            not installed.
    """
    named, of_file = (pattern.fullmatch(spec.checkpoint) for pattern in (_OPEN_CLIP_NAME, _OPEN_CLIP_FILE))
    form = named or of_file
    if not adapter_named(spec.adapter).open_clip or form is None or Path(spec.checkpoint).exists():
        return None
    require_libraries(spec)
    import open_clip

    architecture, tag = form["architecture"], form["tag"]
    config = open_clip.get_model_config(architecture)
    if config is None and of_file:
        raise RequestError(unknown(f"encoder {spec.name!r}: architecture", architecture, open_clip.list_models()))
    if config is None:
        return None
    if of_file:
        local_path(spec.checkpoint)  # raises if there is no such file
    weights = open_clip.get_pretrained_cfg(architecture, tag) if tag else {}
    if tag and not weights.get("hf_hub"):
        known = ", ".join(open_clip.list_pretrained_tags_by_model(architecture)) or "none"
        raise RequestError(f"open_clip has no weights {tag!r} on the hub for {architecture}; known: {known}")
    repository, _, filename = weights.get("hf_hub", "").rpartition("/")
    return OpenClipTag(
        architecture=architecture,
        repository=repository,
        weights=(*filter(None, [filename]), *adapter_named(spec.adapter).weights),
        config=config,
        preprocess={k: weights[k] for k in ("mean", "std", "interpolation", "resize_mode") if k in weights},
        key=(of_file["key"] if of_file else "") or "",
    )


def chosen_weights(files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return the files of each folder that match the first pattern with any match there.

    Examples:
        >>> chosen_weights(["model.safetensors", "open_clip_pytorch_model.bin"], adapter_named("openclip").weights)
        ['open_clip_pytorch_model.bin']
        >>> files = ["model.safetensors", "pytorch_model.bin", "2_Dense/model.safetensors"]
        >>> chosen_weights(files, adapter_named("sentence_transformers").weights)
        ['2_Dense/model.safetensors', 'model.safetensors']
    """
    chosen: dict[str, list[str]] = {}
    for pattern in patterns:
        matches: dict[str, list[str]] = {}
        for file in files:
            # a star does not match the "/" of another folder
            if fnmatchcase(file, pattern) and file.count("/") == pattern.count("/"):
                matches.setdefault(file.rpartition("/")[0], []).append(file)
        chosen = matches | chosen
    return sorted(file for of_folder in chosen.values() for file in of_folder)


def weight_files(spec: EncoderSpec) -> list[Path]:
    """Return the files with the weights of a resolved spec, then those of the base model of a LoRA adapter."""
    folder, (_, patterns) = folder_of(spec), source_of(spec)
    if folder.is_file():
        return [folder]
    base = base_folder(spec, folder)
    return [
        each / name
        for each in filter(None, [folder, base])
        for name in chosen_weights([path.relative_to(each).as_posix() for path in each.rglob("*")], patterns)
    ]


def needed_files(files: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """Return all files of a repository except weights in other formats.

    Examples:
        >>> needed_files(["config.json", "model.safetensors", "pytorch_model.bin"], adapter_named("hf_dual").weights)
        ['config.json', 'model.safetensors']
    """
    chosen = set(chosen_weights(files, patterns))
    return [file for file in files if file in chosen or not file.endswith(_HEAVY)]


def snapshot(repository: str, commit: str, weights: Sequence[str]) -> Path:
    """Return the folder of one commit of a hub repository, with only the required weights.

    Args:
        repository: Hub id.
        commit: A commit, never a branch.
        weights: Patterns of the files with weights, in order of preference; empty: no weights.

    Raises:
        RequestError: If the repository or commit does not exist.
        WorkError: As in :func:`capim.tasks.hub.folder_at`.
    """
    return folder_at(repository, commit, partial(needed_files, patterns=weights))


def downloads_of(spec: EncoderSpec) -> dict[str, int]:
    """Return the files, as ``repository/file``, and their bytes that loading a resolved spec would download."""
    if adapter_named(spec.adapter).is_remote or spec.checkpoint == spec.adapter or local_path(spec.checkpoint):
        return {}
    repository, weights = source_of(spec)
    needed = [(repository, spec.revision, weights)]
    # other related repositories hold code or a configuration
    of_base = weights if adapter_named(spec.adapter).lora else ()
    needed += [(name, commit, of_base) for name, commit in pins_of(spec).items() if is_commit(commit)]
    return {
        f"{name}/{file}": n_bytes
        for name, commit, patterns in needed
        for file, n_bytes in to_download(name, commit, partial(needed_files, patterns=patterns)).items()
    }


def complete_folder(spec: EncoderSpec, *, may_be_blind: bool = False) -> Path:
    """Return the folder of a resolved spec in the layout of ``save_pretrained``, with every required kind of file.

    ``may_be_blind``: True if the model may read only text, and so needs no image preprocessing.

    Raises:
        RequestError: If the configuration, the weights, the image preprocessing or the tokenizer is missing; the
            message names the file and the command that fetches it.
    """
    folder, weights = folder_of(spec), adapter_named(spec.adapter).weights
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    last = {name.rpartition("/")[2] for name in names}
    where = f"encoder {spec.name!r}: {spec.checkpoint}"
    if not last & {"config.json", "adapter_config.json"}:
        raise RequestError(f"{where} has no config.json, which names the architecture; {_OWN_CODE}")
    if not chosen_weights(names, weights):
        raise RequestError(f"{where} has no weights ({', '.join(weights)}); {_OWN_CODE}")
    # sentence-transformers keeps a model in a folder of its own, and a model of text needs no images
    models = [file for file in sorted(folder.rglob("config.json")) if "model_type" in json_file(file)]
    home = models[0].parent if models else folder
    sees = any({"vision_config", "vlm_config"} & json_file(file).keys() for file in models)
    preprocesses = any("image_processor" in json_file(file) for file in folder.rglob("processor_config.json"))
    if "preprocessor_config.json" not in last and (sees or not may_be_blind) and not preprocesses:
        raise RequestError(
            f"{where} has no preprocessor_config.json, which says how images are resized and normalised; "
            + _fetching(spec, home, "preprocessor_config.json")
        )
    if not last & set(_TOKENIZERS) and not any(name.endswith(".model") for name in last):
        raise RequestError(f"{where} has no tokenizer ({', '.join(_TOKENIZERS)}); " + _fetching(spec, home, "*token*"))
    return folder


def _fetching(spec: EncoderSpec, home: Path, files: str) -> str:
    """Return the command that fetches files of the original model into the folder of the configuration."""
    base = json_file(home / "adapter_config.json").get("base_model_name_or_path")
    known = str(base or json_file(home / "config.json").get("_name_or_path"))
    named = known.count("/") == 1 and not Path(known).exists()
    original, which = (known, "") if named else ("ORIGINAL", " (ORIGINAL)")
    here, first = str(home), ""
    if local_path(spec.checkpoint) is None:
        here = "./model"
        first = f'hf download {repository_of(spec.checkpoint)} --local-dir ./model, set checkpoint = "./model", and '
    command = f"{first}hf download {original} --include '{files}' --local-dir {here}"
    return f"take it from the model that this one was trained from{which}: {command}"

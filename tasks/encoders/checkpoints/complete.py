"""Whether a folder holds what its weights need: libraries fill in a missing file with defaults, or name it badly.

Without a tokenizer, transformers makes an empty one and every caption has the same few tokens.
"""

from __future__ import annotations

from pathlib import Path

from capim.store.errors import RequestError
from capim.store.types import EncoderSpec
from capim.tasks.encoders.checkpoints.checkpoint import folder_of, json_file, local_path, repository_of
from capim.tasks.encoders.checkpoints.weight_files import WEIGHT_FILES, chosen_weights

_TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tekken.json")
_OWN_CODE = 'if you saved it yourself, call save_pretrained, or load it in code of your own (adapter = "module")'


def complete_folder(spec: EncoderSpec) -> Path:
    """The folder of a resolved spec in the layout of ``save_pretrained``, with every kind of file that a model needs.

    Raises:
        RequestError: The configuration, the weights, the image preprocessing or the tokenizer is missing; the message
            names the file and the command that fetches it.
    """
    folder = folder_of(spec)
    names = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    last = {name.rpartition("/")[2] for name in names}
    where = f"encoder {spec.name!r}: {spec.checkpoint}"
    if not last & {"config.json", "adapter_config.json"}:
        raise RequestError(f"{where} has no config.json, which names the architecture; {_OWN_CODE}")
    if not chosen_weights(names, WEIGHT_FILES[spec.adapter]):
        raise RequestError(f"{where} has no weights ({', '.join(WEIGHT_FILES[spec.adapter])}); {_OWN_CODE}")
    # sentence-transformers keeps a model in a folder of its own, and a model of text needs no images
    models = [file for file in sorted(folder.rglob("config.json")) if "model_type" in (json_file(file) or {})]
    home = models[0].parent if models else folder
    text_only = spec.adapter == "sentence_transformers" and not any(
        {"vision_config", "vlm_config"} & (json_file(file) or {}).keys() for file in models
    )
    preprocesses = text_only or any(
        "image_processor" in (json_file(file) or {}) for file in folder.rglob("processor_config.json")
    )
    if "preprocessor_config.json" not in last and not preprocesses:
        raise RequestError(
            f"{where} has no preprocessor_config.json, which says how images are resized and normalised; "
            + _copy(spec, home, "preprocessor_config.json")
        )
    if not last & set(_TOKENIZERS) and not any(name.endswith(".model") for name in last):
        raise RequestError(f"{where} has no tokenizer ({', '.join(_TOKENIZERS)}); " + _copy(spec, home, "*token*"))
    return folder


def _copy(spec: EncoderSpec, home: Path, files: str) -> str:
    """The command that fetches files of the original model into the folder of the configuration."""
    known = (json_file(home / "adapter_config.json") or {}).get("base_model_name_or_path") or (
        json_file(home / "config.json") or {}
    ).get("_name_or_path")
    named = known and str(known).count("/") == 1 and not Path(str(known)).exists()
    original, which = (str(known), "") if named else ("ORIGINAL", " (ORIGINAL)")
    here, first = str(home), ""
    if local_path(spec.checkpoint) is None:
        here = "./model"
        first = f'hf download {repository_of(spec.checkpoint)} --local-dir ./model, set checkpoint = "./model", and '
    command = f"{first}hf download {original} --include '{files}' --local-dir {here}"
    return f"take it from the model that this one was trained from{which}: {command}"

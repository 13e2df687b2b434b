"""The parser of every command: options in the singular and in the plural, and suggestions for wrong words."""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from capim.flows.config import FIELDS
from capim.flows.terminal.output import FORMATS
from capim.store.errors import RequestError, did_you_mean, unknown
from capim.store.types import Precision, Storage
from capim.tasks.statistics.draws import ADJUSTMENTS, METHODS

WRONG_REQUEST = 2
Kind = Literal["encoders", "corpora", "protocols", "metrics"]
PLURALS: dict[str, Kind] = {
    "encoder": "encoders", "corpus": "corpora", "protocol": "protocols", "metric": "metrics",
}  # fmt: skip
_SPELLINGS = {
    **{f"--{one}": f"--{several}" for one, several in PLURALS.items()},
    **{f"--{several}": f"--{one}" for one, several in PLURALS.items()},
}


def _completed(kind: Kind, prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """The completions of a word, as argcomplete asks for them."""
    from capim.flows.commands.completion import complete_names

    return complete_names(kind, prefix, getattr(parsed_args, "workspace", None))


def names(text: str) -> tuple[str, ...]:
    """``"a,b"`` as a tuple, blanks left out; a comma in parentheses, as in ``own:at(k=3, n=5)``, separates nothing."""
    return tuple(part.strip() for part in re.split(r",(?![^()]*\))", text) if part.strip())


class _Several(argparse.Action):
    """Names of an option that may be repeated: ``--encoder a --encoder b`` is ``--encoders a,b``."""

    def __call__(self, parser: object, namespace: object, values: object, option_string: str | None = None) -> None:
        if not isinstance(values, tuple) or not values:
            raise argparse.ArgumentError(self, "expected names separated by commas; without the option all are taken")
        setattr(namespace, self.dest, (*(getattr(namespace, self.dest, None) or ()), *values))


class _Once(argparse.Action):
    """The name of an option that takes one; a second is refused, where argparse would drop the first."""

    def __call__(self, parser: object, namespace: object, values: object, option_string: str | None = None) -> None:
        if (earlier := getattr(namespace, self.dest, None)) is not None:
            raise argparse.ArgumentError(self, f"takes one name, got {earlier!r} and {values!r}")
        setattr(namespace, self.dest, values)


class DocstringFormatter(argparse.HelpFormatter):
    """Fills the paragraphs of a docstring to the width of the terminal, and the second column of its lists.

    Examples and what is indented by four blanks, to be copied, stay as they are.
    """

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(self._filled(paragraph, width) for paragraph in text.split("\n\n"))

    @staticmethod
    def _filled(paragraph: str, width: int) -> str:
        if paragraph.startswith(("    ", "Example: ")):
            return paragraph
        filled = []
        for item in re.split(r"\n(?=  \S)", paragraph):
            head = match.group() if (match := re.match(r"  \S.*?  +", item)) else ""
            wrapped = textwrap.TextWrapper(width, head, " " * len(head), break_on_hyphens=False)
            filled.append(wrapped.fill(" ".join(item[len(head) :].split())))
        return "\n".join(filled)


class Parser(argparse.ArgumentParser):
    """As argparse's parser, with two spellings of some options, one line per fault, and suggestions."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def add_argument(self, *flags: str, **settings: Any) -> argparse.Action:
        """Add an argument; an option of ``PLURALS`` gets its other spelling, and its names may be given one by one."""
        twins = [_SPELLINGS[flag] for flag in flags if flag in _SPELLINGS]
        if twins and "action" not in settings:
            settings["action"] = _Several if settings.get("type") is names else _Once
        action = super().add_argument(*flags, **settings)
        for twin in twins:
            self._option_string_actions.setdefault(twin, action)
        name = flags[0].lstrip("-")
        kind = next((several for one, several in PLURALS.items() if name in (one, several)), None)
        if kind is not None and settings.get("metavar") != "FILE.py:NAME":
            action.completer = partial(_completed, kind)  # type: ignore[attr-defined]
        return action

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse; what is not known is an error of the command that it was given to, which knows its options."""
        first = next(iter(sys.argv[1:] if args is None else args), "").partition("=")[0]
        if self._subparsers is not None and first.startswith("--") and first not in self._option_string_actions:
            self.error(f"options stand after the command: {self.prog} COMMAND {first} …")
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
            faults = [self._unknown_option(each) for each in options] or [f"unexpected argument {unknown[0]!r}"]
            self.error(str(RequestError(faults)))
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Print what is wrong in one line and how to see what is right in another; exit code 2."""
        self.exit(WRONG_REQUEST, f"capim: {message}\n`{self.prog} --help` shows what it takes\n")

    def _unknown_option(self, option: str) -> str:
        hint = did_you_mean(option, (known for known in self._option_string_actions if known.startswith("--")))
        return f"`{self.prog}` has no option {option}{hint and '; '}{hint.strip()}"

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            what = "command" if isinstance(action, argparse._SubParsersAction) else _called(action)  # noqa: SLF001
            self.error(unknown(what, str(value), known))


def _called(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else "argument"


def spelt(known: Sequence[str]) -> Callable[[str], str]:
    """A type of argument that takes the singular of a known word for the word."""

    def convert(text: str) -> str:
        return PLURALS[text] if PLURALS.get(text) in known else text

    return convert


# --- Declares commands and their options: help texts are docstrings of functions and descriptions of ``RunConfig``.


Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
Command: TypeAlias = Callable[[argparse.Namespace], int | None]

ENCODING = ("sample", "batch_size", "device", "shards", "precision", "storage", "compile", "trust_remote_code")
STATISTICS = ("replicates", "level", "interval", "seed")
TESTS = ("adjustment", "permutations", "margin")
SCORING = ("protocols", "memory", "parts", "distractors")
_EVERYTHING = (*ENCODING, *SCORING, *STATISTICS, "keep_replicates", *TESTS)
STEP_FIELDS: dict[str, tuple[str, ...]] = {
    "run": (*_EVERYTHING, "analyses"),
    "embed": (*ENCODING, "seed"),
    "evaluate": ("device", *SCORING, *STATISTICS, "keep_replicates"),
    "compare": ("protocols", *STATISTICS, *TESTS, "analyses"),
    # a watch adjusts over its own findings
    "watch": (*(field for field in _EVERYTHING if field not in {"adjustment", "margin"}), "baseline"),
    "report": ("protocols",),
}
"""The fields of ``RunConfig`` that each step uses, beside corpora and encoders."""
ALIASES = {"device": ("--devices",), "replicates": ("--bootstrap-iterations",)}


ARGUMENTS: dict[str, dict[str, Any]] = {
    "corpora": {"type": names, "metavar": "A,B"},
    "encoders": {"type": names, "metavar": "X,Y"},
    "protocols": {"type": names, "metavar": "P,Q"},
    "analyses": {"type": names, "metavar": "A,B"},
    "device": {"metavar": "D"},
    "memory": {"metavar": "SIZE"},
    "distractors": {"type": names, "metavar": "A,B"},
    "precision": {"choices": get_args(Precision)},
    "storage": {"choices": get_args(Storage)},
    "compile": {"action": "store_true", "default": None},
    "level": {"metavar": "P"},
    "interval": {"choices": METHODS},
    "adjustment": {"choices": ADJUSTMENTS},
    "margin": {"metavar": "POINTS"},
    "keep_replicates": {"action": "store_true", "default": None},
    "baseline": {"metavar": "RUN"},
    "trust_remote_code": {"action": "store_true", "default": None},
}


def declare(
    commands: Commands,
    common: argparse.ArgumentParser,
    name: str,
    function: Command,
    *,
    rows: bool = False,
    workspace: bool = True,
) -> argparse.ArgumentParser:
    """Add one command; its help is the docstring of ``function``, and ``rows`` gives it ``--format``.

    ``workspace`` is whether it reads or writes one.
    """
    text = inspect.getdoc(function) or ""
    parser = commands.add_parser(
        name,
        parents=[common],
        help=text.splitlines()[0].rstrip("."),
        description=text,
        formatter_class=DocstringFormatter,
    )
    if rows:
        parser.add_argument(
            "--format", choices=FORMATS, default="table", help="output format of the rows (default: table)"
        )
        parser.add_argument("--columns", type=names, metavar="A,B", help="only these columns, in this order")
        parser.add_argument(
            "--wide", action="store_true", help="tables: every column, wider than the terminal if need be"
        )
    if workspace:
        parser.add_argument(
            "--workspace",
            metavar="DIR",
            help="folder or URI that holds store/ and reports/ (default: the suite file's, else $CAPIM_WORKSPACE, else "
            "./workspace)",
        )
    parser.set_defaults(run=function)
    return parser


def declare_group(commands: Commands, name: str, function: Command) -> Commands:
    """Add a command that only has commands of its own; it has no options, which theirs would overwrite."""
    nothing = argparse.ArgumentParser(add_help=False)
    parser = declare(commands, nothing, name, function, workspace=False)
    return parser.add_subparsers(dest="part", metavar="PART")


def config_options(parser: argparse.ArgumentParser, *fields: str, required: bool = False) -> None:
    """Add fields of ``RunConfig`` as options, with their descriptions as help; their values are checked there."""
    for field in fields:
        default = FIELDS[field].default
        given = "" if default is None or default is False or default == () else f" (default: {default})"
        parser.add_argument(
            f"--{field.replace('_', '-')}",
            *ALIASES.get(field, ()),
            help=f"{FIELDS[field].description}{given}",
            required=required,
            **ARGUMENTS.get(field, {"metavar": "N"}),
        )


def refuse_unused(args: argparse.Namespace, where: str, **options: str) -> None:
    """Raise for options that were given and have no effect here; ``options``: their attributes, and how they are given.

    Raises:
        RequestError: Names them all.
    """
    given = [option for name, option in options.items() if getattr(args, name) not in (None, False, ())]
    if given:
        raise RequestError([f"{option} has no effect {where}; leave it out" for option in given])


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of ``RunConfig`` among the parsed options; None where an option was not given."""
    return {field: value for field, value in vars(args).items() if field in FIELDS}

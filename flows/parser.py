"""Commands made of typed functions: options from the signature, help from the docstring and its section ``Args``.

A function's positional parameters are arguments of its command, its keyword-only ones options; what their types do not
say is in the annotation: ``Annotated[int, "K", "-k"]`` names the value and the flags. Some parameters have a meaning:

- ``config: Annotated[RunConfig, Where, "seed"]``: a run, from options for the fields of these groups and names;
- ``workspace``: the option ``--workspace``, else that of ``config``;
- ``form``: the options that say how rows are printed; a function that returns :class:`~capim.flows.terminal.Rows` has
  them anyway;
- ``quiet``: that of the program;
- ``given``: all options that were given, by their names.

Options are spelt in the singular and in the plural, and wrong words are answered with the nearest right ones.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import fields
from functools import lru_cache, partial
from types import MappingProxyType, UnionType
from typing import Annotated, Any, Literal, NoReturn, TypeAlias, Union, get_args, get_origin, get_type_hints

from capim.flows.config import FIELDS, RunConfig, described, split, step_config
from capim.flows.terminal import Form, Rows
from capim.store.errors import RequestError, WorkError, did_you_mean, unknown

WRONG_REQUEST = 2
PLURALS = {"encoder": "encoders", "corpus": "corpora", "protocol": "protocols", "metric": "metrics"}
_SPELLINGS = {
    **{f"--{one}": f"--{several}" for one, several in PLURALS.items()},
    **{f"--{several}": f"--{one}" for one, several in PLURALS.items()},
}
Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"  # noqa: SLF001 - it has no public name
Command: TypeAlias = Callable[..., object]
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_GIVEN = ("config", "form", "given", "quiet", "workspace")  # parameters that are no options of one command
_NOT_GIVEN: tuple[object, ...] = (None, False, (), [])
_WORKSPACE = (
    "folder or URI that holds store/ and reports/ (default: the suite file's, else $CAPIM_WORKSPACE, else ./workspace)"
)


def add_command(
    commands: Commands, common: argparse.ArgumentParser, name: str, function: Command, *, called: bool = True
) -> None:
    """Add the command that calls a function; with its options if it may be called."""
    parser = _add(commands, name, inspect.getdoc(function) or "", common)
    if not called:
        return
    declared = inspect.signature(function).parameters
    used: dict[str, Any] = {}
    if "config" in declared:
        used = used_by(_hints(function, ["config"])["config"].__metadata__)
        for each, (hint, text) in used.items():
            if each == "workspace":
                continue
            default = FIELDS[each].default if each in FIELDS else None
            words = text if default is None or default is False or default == () else f"{text} (default: {default})"
            _add_option(parser, each, hint, None, words, positional=each == "suite", checked=each not in FIELDS)
    own = described(function)
    for each, hint in _hints(function, declared.keys() - {*_GIVEN, *used}).items():
        positional = declared[each].kind is not _KEYWORD
        _add_option(parser, each, hint, declared[each].default, own[each], positional=positional)
    if "form" in declared or function.__annotations__["return"] == "Rows":
        for each, hint in get_type_hints(Form, include_extras=True).items():
            _add_option(parser, each, hint, getattr(Form(), each), described(Form)[each])
    if "workspace" in declared or {"workspace", "corpora"} & used.keys():
        _add_option(parser, "workspace", Annotated[str | None, "DIR"], None, _WORKSPACE)
    parser.set_defaults(call=partial(_call, function, used))


def _hints(function: Command, parameters: Collection[str]) -> dict[str, Any]:
    """The types of some parameters, in their order; those of others may be known to type checkers alone."""
    holder = type("", (), {"__annotations__": {n: h for n, h in function.__annotations__.items() if n in parameters}})
    return get_type_hints(holder, globalns=vars(sys.modules[function.__module__]), include_extras=True)


def add_group(commands: Commands, name: str, text: str, parts: Mapping[str, Command]) -> Commands:
    """Add a command that only has commands of its own; it has no options, which theirs would overwrite."""

    def choose(_: argparse.Namespace) -> int:
        sys.stderr.write(f"capim: choose a command: capim {name} {'|'.join(parts)}\n")
        return WRONG_REQUEST

    parser = _add(commands, name, text, argparse.ArgumentParser(add_help=False))
    parser.set_defaults(call=choose)
    return parser.add_subparsers(dest="part", metavar="PART")


def _add(commands: Commands, name: str, text: str, common: argparse.ArgumentParser) -> argparse.ArgumentParser:
    text = re.split(r"\n\n(?:Args|Returns|Raises):", text)[0]
    first = text.partition("\n")[0].rstrip(".")
    return commands.add_parser(name, parents=[common], help=first, description=text, formatter_class=DocstringFormatter)


def used_by(sources: Collection[type | str]) -> dict[str, tuple[Any, str]]:
    """The options of groups of fields and of single fields, with their types and help."""
    used: dict[str, tuple[Any, str]] = {}
    for source in sources:
        used |= {source: _options_of(RunConfig)[source]} if isinstance(source, str) else _options_of(source)
    return used


@lru_cache
def _options_of(group: type) -> dict[str, tuple[Any, str]]:
    hints = get_type_hints(group, include_extras=True)
    return {name: (hints[name], text) for name, text in described(group).items()}


def _add_option(
    parser: argparse.ArgumentParser,
    name: str,
    hint: Any,
    default: Any,
    text: str,
    *,
    positional: bool = False,
    checked: bool = True,
) -> None:
    """Add one option or argument as its type says; ``checked``: a number is one, before anybody else checks it."""
    kind, *metadata = (hint.__origin__, *hint.__metadata__) if get_origin(hint) is Annotated else (hint,)
    words = [each for each in metadata if isinstance(each, str)]
    flags = [each for each in words if each.startswith("-")] or [f"--{name.replace('_', '-')}"]
    metavar = next((each for each in words if not each.startswith("-")), None if checked else "N")
    left = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) in (Union, UnionType) and len(left) == 1:
        kind = left[0]
    settings: dict[str, Any] = {"help": text, "default": default}
    if kind is bool:
        settings |= {"action": "store_true"}
    elif get_origin(kind) is Literal:
        choices = get_args(kind)
        settings |= {"choices": choices, "type": lambda word: PLURALS[word] if PLURALS.get(word) in choices else word}
        settings |= {"metavar": metavar if checked else None}
    elif get_origin(kind) is tuple and get_args(kind)[-1] is not Ellipsis:
        settings |= {"nargs": len(get_args(kind)), "metavar": tuple(str(metavar).split())}
    else:
        several = get_origin(kind) is tuple
        number = checked and kind in (int, float)
        settings |= {"metavar": metavar, "type": split if several else kind if number else str}
        settings |= {"action": _Several} if several and default == () and not positional else {}
    if default is inspect.Parameter.empty:
        settings |= {"default": None, **({} if positional else {"required": True})}
    elif positional:
        many = settings.get("type") is split
        settings |= {"nargs": "*", "type": str} if many else {"nargs": "?"}
    if not positional:
        settings |= {"dest": name}
    parser.add_argument(*([name] if positional else flags), **settings)


def _call(function: Command, used: Mapping[str, Any], args: argparse.Namespace) -> int:
    """Call a function with parsed options; prints the rows that it returns."""
    values = dict(vars(args))
    form = Form(**{each.name: values[each.name] for each in fields(Form)}) if "format" in values else Form()
    if form.wide and not form.table:  # before the work is done
        raise RequestError(f"--wide has no effect with --format {form.format}; leave it out")
    values |= {"form": form, "given": {name: value for name, value in values.items() if value not in _NOT_GIVEN}}
    taken = inspect.signature(function).parameters
    if "config" in taken:
        options = {name: values[name] for name in (*used, "workspace") if name in FIELDS and name in values}
        values["config"] = step_config(args.command, used, options, values["suite"] if "suite" in used else None)
    done = function(**{name: values[name] for name in taken})
    return done.print(form) if isinstance(done, Rows) else done if isinstance(done, int) else 0


def _completions(kinds: Collection[str], prefix: str, parsed_args: argparse.Namespace, **_: object) -> list[str]:
    """What a list of names (``a,b``) may become, as argcomplete asks: its last begins a known or stored name."""
    from capim.flows.stored import open_store
    from capim.store.schema import texts
    from capim.tasks.corpora import CORPORA
    from capim.tasks.encoders.catalog import catalog
    from capim.tasks.metrics import METRICS
    from capim.tasks.ranking.protocols import PROTOCOLS

    known = {"encoders": catalog(), "corpora": CORPORA, "protocols": PROTOCOLS, "metrics": METRICS}
    names = {name for kind in kinds for name in known[kind]}
    with suppress(RequestError, WorkError):  # there may be no store
        store = open_store(getattr(parsed_args, "workspace", None))
        for kind in kinds:
            of_results = kind in ("protocols", "metrics")
            names |= {*(store.counts("results", kind[:-1]) if of_results else texts(getattr(store, kind)()["name"]))}
    done, comma, last = prefix.rpartition(",")
    return sorted(done + comma + name for name in names if name.startswith(last) and name not in done.split(","))


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
    """As argparse's parser, with two spellings of some options, one line per fault, and suggestions.

    Attributes:
        gone: Command or option of an earlier release -> what to type now.
    """

    gone: Mapping[str, str] = MappingProxyType({})

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **settings})

    def add_argument(self, *flags: str, **settings: Any) -> argparse.Action:
        """Add an argument; an option of ``PLURALS`` gets its other spelling, and its names may be given one by one."""
        twins = [_SPELLINGS[flag] for flag in flags if flag in _SPELLINGS]
        if twins and "action" not in settings:
            settings["action"] = _Several if settings.get("type") is split else _Once
        action = super().add_argument(*flags, **settings)
        for twin in twins:
            self._option_string_actions.setdefault(twin, action)
        name = flags[0].lstrip("-")
        kinds = [several for one, several in PLURALS.items() if name in (one, several)]
        if settings.get("metavar") == "NAME-OR-PATH":
            kinds = ["encoders", "corpora"]
        if kinds and settings.get("metavar") != "FILE.py:NAME":
            action.completer = partial(_completions, kinds)  # type: ignore[attr-defined]
        return action

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse; what is not known is an error of the command that it was given to, which knows its options."""
        self._words = [*(sys.argv[1:] if args is None else args)]
        first = next(iter(self._words), "").partition("=")[0]
        if self._subparsers is not None and first.startswith("--") and first not in self._option_string_actions:
            self.error(self._now(first) or f"options stand after the command: {self.prog} COMMAND {first} …")
        parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
            faults = [self._now(each) or self._unknown_option(each) for each in options] or [
                f"unexpected argument {unknown[0]!r}"
            ]
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
            self.error(self._now(*self._words[:2]) or self._now(str(value)) or unknown(what, str(value), known))

    def _now(self, *words: str) -> str | None:
        """What to type instead of a command or an option of an earlier release; None: there was none."""
        typed = " ".join([*self.prog.split()[1:], *words])
        name = next((name for name in (typed, words[-1]) if name in self.gone), None)
        return name and f"{name} is no longer there; instead: {self.gone[name]}"


def _called(action: argparse.Action) -> str:
    return action.option_strings[0] if action.option_strings else "argument"

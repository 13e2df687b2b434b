"""The commands of `capim`, made by cyclopts from typed functions.

A parameter that a function's docstring describes under ``Args`` is an option of its command; a positional one is an
argument. What the type does not say is in the annotation: ``Annotated[int, "K", "-k"]`` names the value and the flags.
Other parameters get their values from here:

- ``config: Annotated[RunConfig, Where, "seed"]``: a run, from options for the fields of these groups and names;
- ``workspace``: the option ``--workspace``, else the default workspace;
- ``form``: the options that say how rows are printed; a function that returns :class:`~capim.flows.terminal.Rows` has
  these options in any case;
- ``show``: prints a report's recommendation and its path;
- ``quiet``: the option of the program;
- ``given``: all options that were given, by name.

Only the command that is called is imported: its libraries take longer than a page of help may.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from functools import cache
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from cyclopts import App, ArgumentCollection, Group, Parameter, Token
from cyclopts.exceptions import CycloptsError, UnknownCommandError, UnknownOptionError
from cyclopts.help.formatters import DefaultFormatter

from capim.store.errors import RequestError, did_you_mean

if TYPE_CHECKING:
    from cyclopts.help import HelpPanel, InlineText
    from rich.console import Console, ConsoleOptions

Function = Callable[..., object]
COMMANDS: dict[str, dict[str, str]] = {
    "Pipeline": {
        "demo": "steps:demo", "run": "steps:run", "embed": "steps:embed", "evaluate": "steps:evaluate",
        "compare": "steps:compare", "analyse": "steps:analyse", "report": "steps:report", "watch": "steps:watch",
    },
    "Explore": {
        "results": "stored:results", "choose": "stored:choose", "serve": "stored:serve", "search": "stored:search",
        "explain": "stored:explain", "query": "stored:query", "why": "stored:why",
    },
    "In and out": {"import": "steps:import_", "export": "stored:export"},
    "Combine": {"rerank": "steps:rerank", "fuse": "steps:fuse"},
    "Models and corpora": {
        "list": "inspection:list_known", "check": "inspection:check", "duplicates": "stored:duplicates",
    },
    "Store and shell": {
        "store info": "inspection:info", "store verify": "inspection:verify", "store upgrade": "inspection:upgrade",
        "store prune": "inspection:prune", "store drop": "inspection:drop", "completion": "commands:completion",
    },
}  # fmt: skip
"""Group -> its commands -> the function of each, ``module:name`` in this package."""
_ABOUT = """Evaluate image-text embedding models: encode images and captions once, compute the rest from the stored
embeddings.

Start with `capim demo`: the whole pipeline on rendered scenes and tiny models, offline. --encoder and --encoders are
one option, and so are --corpus and --corpora; names are separated by commas."""
_STORE = """Inspect and maintain the store: info, verify, upgrade, prune, drop.

Example: capim store info"""
_WORKSPACE = (
    "folder or URI that holds store/ and reports/ (default: the suite file's, else $CAPIM_WORKSPACE, else ./workspace)"
)
_PANELS = {
    "Data": ("Suite", "Where", "Protocols"),
    "Options": (),
    "Encoding": ("Encoding",),
    "Computing": ("Device", "Scoring"),
    "Statistics": ("Seed", "Statistics", "Permutations", "Comparing", "Analysing"),
    "Output": (),
    "Every command": (),
}
"""Panel of a help page, in this order -> the classes that declare its options; others are "Options"."""
_GROUPS = {title: Group.create_ordered(title) for title in _PANELS}
_PROGRAM = {
    "debug": "show a traceback on errors",
    "verbose": "show log lines of the libraries",
    "quiet": "show no progress",
}
_HELP = {"--help", "-h"}


def completion(shell: Literal["bash", "zsh", "fish"]) -> None:
    """Print a shell completion script.

    It completes commands, options and their choices. Write it again after an upgrade.

    Example: capim completion bash > ~/.local/share/bash-completion/completions/capim

    Example: capim completion fish > ~/.config/fish/completions/capim.fish

    Example: capim completion zsh > ~/.zfunc/_capim

    Args:
        shell: the shell that completes
    """
    sys.stdout.write(build_app().generate_completion(shell=shell))


# --- The app, its groups and its commands.


def build_app(words: Collection[str] | None = None) -> App:
    """Return the app; if the words of a command line are given, only the commands among them have their options."""
    app = App(
        "capim",
        help=_ABOUT,
        help_format="plaintext",
        help_formatter=_HelpPage(),
        version=_version,
        version_format="plaintext",
        default_parameter=Parameter(allow_repeating=True, show_default=False),
        suppress_keyboard_interrupt=False,
    )
    store = App("store", help=_STORE)
    names = {name.rpartition(" ")[2] for commands in COMMANDS.values() for name in commands}
    lists_all = words is None or names.isdisjoint(words) or not _HELP.isdisjoint(words)  # else no page lists commands
    for title, commands in COMMANDS.items():
        group = Group.create_ordered(title)
        for place, (name, where) in enumerate(commands.items()):
            module, _, attribute = where.partition(":")
            line = _first_lines(module)[attribute] if lists_all else ""  # reading them all takes 50 ms
            command = App(name.rpartition(" ")[2], help=line, sort_key=place)
            if words is None or command.name[0] in words:
                function = getattr(import_module(f"capim.flows.{module}"), attribute)
                command.help = re.split(r"\n\n(?:Args|Returns|Raises):", inspect.getdoc(function) or "")[0]
                command.default(_command(name, function))
            if name.startswith("store "):
                store.command(command)
            else:
                command.group = group
                app.command(command)
    for flag in ("--help", "--version"):
        app[flag].group = _GROUPS["Every command"]
    store.group, store.sort_key = group, -1
    app.command(store)
    return app


def _version() -> str:
    from importlib.metadata import version

    return f"capim {version('capim')}"


@cache
def _first_lines(module: str) -> dict[str, str]:
    """Return function -> first line of its docstring, read without importing the module."""
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {each.name: (ast.get_docstring(each) or "").partition("\n")[0].rstrip(".") for each in functions}


# --- A command: the parameters that cyclopts reads, and the call of the function.


def _command(name: str, function: Function) -> Callable[..., int]:
    """Return the function that cyclopts calls: it has one plain parameter for each option."""
    from capim.flows.config import FIELDS, step_config
    from capim.flows.terminal import Form, Rows, is_given, print_report

    of_run = _of_run(function)
    parameters = [*(option for each, option in of_run.items() if each != "workspace"), *_own(function, of_run)]
    signature = inspect.Signature(sorted(parameters, key=lambda each: each.kind))
    taken = inspect.signature(function).parameters

    def call(*args: object, **kwargs: object) -> int:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        values = bound.arguments
        form = Form(**{each.name: values[each.name] for each in fields(Form)}) if "wide" in values else Form()
        if form.wide and not form.table:  # before the work is done
            raise RequestError(f"--wide has no effect with --format {form.format}; leave it out")
        given = {name: value for name, value in values.items() if is_given(value)}
        if "config" in taken:
            options = {each: values.get(each) for each in (*of_run, "workspace") if each in FIELDS}
            values["config"] = step_config(name, options, options, values.get("suite"))
        values |= {"form": form, "given": given, "show": print_report}
        done = function(**{name: values[name] for name in taken if name in values})
        return done.print(form) if isinstance(done, Rows) else done if isinstance(done, int) else 0

    call.__signature__ = signature  # type: ignore[attr-defined]
    call.__annotations__ = {each.name: each.annotation for each in parameters}
    return call


def _of_run(function: Function) -> dict[str, inspect.Parameter]:
    """Return the options for fields of a run, and for other fields of the classes that a command names, by name."""
    from capim.flows.config import FIELDS, RunConfig, described
    from capim.flows.terminal import is_given

    found: dict[str, inspect.Parameter] = {}
    config = _hints(function, ["config"]).get("config")
    for source in config.__metadata__ if config else ():
        group = RunConfig if isinstance(source, str) else source
        hints, texts = get_type_hints(group, include_extras=True), described(group)
        for name in [source] if isinstance(source, str) else texts:
            [declared, *_] = [each for each in group.__mro__ if name in inspect.get_annotations(each)]
            default = FIELDS[name].default if name in FIELDS else None
            text = f"{texts[name]} (default: {default})" if is_given(default) else texts[name]
            panel = next((title for title, classes in _PANELS.items() if declared.__name__ in classes), "Options")
            how = {"positional": name == "suite", "is_checked": name in FIELDS}
            found[name] = _parameter(name, hints[name], text, panel, **how)
    return found


def _own(function: Function, of_run: Collection[str]) -> Iterator[inspect.Parameter]:
    """Yield the options for the parameters of a function, and those of every command."""
    from capim.flows.config import described
    from capim.flows.terminal import Form

    declared, own = inspect.signature(function).parameters, described(function)
    for name, hint in _hints(function, own.keys() - of_run).items():
        positional = declared[name].kind is not inspect.Parameter.KEYWORD_ONLY
        yield _parameter(name, hint, own[name], "Options", declared[name].default, positional=positional)
    if "form" in declared or function.__annotations__["return"] == "Rows":
        for name, hint in get_type_hints(Form, include_extras=True).items():
            yield _parameter(name, hint, described(Form)[name], "Output", getattr(Form(), name))
    if "workspace" in declared or not {"workspace", "corpora"}.isdisjoint(of_run):
        yield _parameter("workspace", Annotated[str | None, "DIR"], _WORKSPACE, "Every command")
    for name, text in _PROGRAM.items():
        yield _parameter(name, bool, text, "Every command", False)


def _hints(function: Function, parameters: Collection[str]) -> dict[str, Any]:
    """Return the types of some parameters, in their order; those of others may be known to type checkers only."""
    holder = type("", (), {"__annotations__": {n: h for n, h in function.__annotations__.items() if n in parameters}})
    return get_type_hints(holder, globalns=vars(sys.modules[function.__module__]), include_extras=True)


def _parameter(
    name: str,
    hint: Any,
    text: str,
    panel: str,
    default: Any = None,
    *,
    positional: bool = False,
    is_checked: bool = False,
) -> inspect.Parameter:
    """Return an option as cyclopts reads it; ``is_checked``: a field of a run, which is checked with the others."""
    from capim.flows.config import OTHER_NUMBER

    metadata: tuple[object, ...] = ()
    if get_origin(hint) is Annotated:
        hint, metadata = hint.__origin__, hint.__metadata__
    kind = _kind(hint, is_checked=is_checked)
    words = [each for each in metadata if isinstance(each, str)]
    flags = [each for each in words if each.startswith("-")] or [f"--{name.replace('_', '-')}"]
    metavar = next((each for each in words if not each.startswith("-")), "N" if is_checked else None)
    settings: dict[str, Any] = {
        "help": text,
        "negative": (),
        "group": _GROUPS[panel],
        "metavar": None if get_origin(kind) is Literal else metavar,
        "converter": _whole if kind is int else _names if kind == tuple[str, ...] and not positional else None,
    }
    if twin := OTHER_NUMBER.get(name):
        settings |= {"alias": f"--{twin}", "allow_repeating": None if kind is str else True}
    return inspect.Parameter(
        name,
        inspect.Parameter.POSITIONAL_ONLY if positional else inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[
            kind | None if default is None else kind, Parameter(name=[] if positional else flags, **settings)
        ],
    )


def _kind(hint: Any, *, is_checked: bool) -> Any:
    """Return the type that cyclopts converts to: a string for all that the command or :func:`step_config` checks."""
    left = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) in (Union, UnionType) and len(left) == 1:
        hint = left[0]
    if get_origin(hint) is tuple and get_args(hint)[-1] is Ellipsis:
        return tuple[str, ...]
    is_number = hint in (int, float) and not is_checked
    return hint if hint is bool or is_number or get_origin(hint) in (tuple, Literal) else str


def _names(_: object, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Return the names of an option that may be repeated: ``--encoder a --encoder b`` is ``--encoders a,b``."""
    from capim.flows.config import split

    parts = [split(token.value) for token in tokens]
    if not all(parts):
        raise ValueError("expected names separated by commas; without the option all are taken")
    return tuple(name for part in parts for name in part)


def _whole(_: object, tokens: Sequence[Token]) -> int:
    """Return the whole number of an option; cyclopts rounds others."""
    if not re.fullmatch(r"[+-]?[0-9]+", tokens[-1].value):
        raise ValueError(f"expected a whole number, got {tokens[-1].value!r}")
    return int(tokens[-1].value)


# --- A page of help: cyclopts lays out the panels; the text keeps commands that can be copied.


class _HelpPage(DefaultFormatter):
    """Prints panels as cyclopts does, with one spelling of each option, and fills the paragraphs of a docstring."""

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print a panel."""
        entries = [each.copy(positive_names=each.positive_names[:1]) for each in panel.entries]
        super().__call__(console, options, panel.copy(entries=entries))

    def render_description(self, console: Console, _: ConsoleOptions, description: InlineText) -> None:
        """Print the docstring; examples, and lines that begin with four blanks, are not broken."""
        for paragraph in str(description.primary_renderable).split("\n\n"):
            console.print(_filled(paragraph, console.width), soft_wrap=True, markup=False, highlight=False, end="\n\n")


def _filled(paragraph: str, width: int) -> str:
    """Return a paragraph in lines of some width; the second column of a list is filled on its own."""
    if paragraph.startswith(("    ", "Example: ")):
        return paragraph
    filled = []
    for item in re.split(r"\n(?=  \S)", paragraph):
        head = match.group() if (match := re.match(r"  \S.*?  +", item)) else ""
        wrapped = textwrap.TextWrapper(width, head, " " * len(head), break_on_hyphens=False)
        filled.append(wrapped.fill(" ".join(item[len(head) :].split())))
    return "\n".join(filled)


# --- The words of a command line.


class Call(NamedTuple):
    """The function that a command line calls, and its arguments."""

    function: Callable[..., object]
    arguments: inspect.BoundArguments
    is_help: bool  # no command was named


def parse(words: Sequence[str]) -> Call:
    """Return what to call for the words of a command line.

    Raises:
        RequestError: They are wrong: names each error, and the command that shows valid arguments.
    """
    app = build_app(words)
    try:
        function, arguments, _ = app.parse_args([*words], print_error=False, exit_on_error=False)
    except CycloptsError as error:
        chain = " ".join(error.command_chain or ())
        faults = RequestError(_faults(error, chain, words))
        raise RequestError(f"{faults}\n`{f'capim {chain}'.strip()} --help` shows its arguments") from None
    return Call(function, arguments, function == app.help_print and _HELP.isdisjoint(words))


def _faults(error: CycloptsError, chain: str, words: Sequence[str]) -> list[str]:
    """Return the errors: all unknown options, or the message of cyclopts about another error."""
    error.verbose = False
    word = (error.unused_tokens or [""])[0].partition("=")[0]
    if isinstance(error, UnknownOptionError):
        return _no_options(chain, words, error.argument_collection)
    if isinstance(error, UnknownCommandError) and word.startswith("-"):
        return [_now(chain, word) or f"options come after the command: {f'capim {chain}'.strip()} COMMAND {word} …"]
    return [_now(chain, word) or str(error)]


def _no_options(chain: str, words: Sequence[str], arguments: ArgumentCollection) -> list[str]:
    """Return the options among the words that a command does not have, each with the nearest one."""
    known = [name for argument in arguments for name in argument.names if name.startswith("-")]
    faults = []
    for option in (word.partition("=")[0] for word in words if word.startswith("-")):
        if option not in known:
            hint = did_you_mean(option, [name for name in known if name.startswith("--")])
            faults.append(_now(chain, option) or f"`capim {chain}` has no option {option}{hint and '; '}{hint.strip()}")
    return faults


def _now(chain: str, word: str) -> str | None:
    """Return what to type instead of a command or an option of an earlier release; None: there was none."""
    from capim.flows.config import gone

    return gone(f"{chain} {word}".strip(), word)

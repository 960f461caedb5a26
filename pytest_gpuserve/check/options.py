"""What options and variables an engine declares, read from its source: flags, choices, default and so on."""

from __future__ import annotations

import ast
import difflib
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..model import Place
from .fold import Fold
from .scope import Scope
from .values import UNKNOWN, Member, Unknown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .package import Definition, Module, Package


class Layout(Struct, frozen=True, kw_only=True):
    """Where an engine keeps what `explain` looks at; paths relative to the package."""

    package: str
    arguments: tuple[str, ...]
    """Files and folders that declare, check and resolve the options: what runs before any GPU is touched."""
    declared_in: tuple[str, ...]
    variables: str
    """The file that declares environment variables."""
    entry: tuple[tuple[str, str], ...]
    """(file, function) with which the resolution of options begins; the first that exists."""
    without: tuple[str, ...]
    """Sub-folders that serve something else."""


SGLANG = Layout(
    package="sglang",
    # Up to 0.5.16 all of it is in server_args.py; 0.5.19 and later have one hook file for each subject.
    arguments=("srt/server_args.py", "srt/arg_groups/"),
    declared_in=("srt/arg_groups/fields/", "srt/server_args.py"),
    variables="srt/environ.py",
    entry=(
        ("srt/arg_groups/pipeline.py", "run_resolution_pipeline"),
        ("srt/server_args.py", "__post_init__"),
    ),
    # Its tests, and a server of its own for image and video models.
    without=("test", "multimodal_gen"),
)


class Option(Struct, frozen=True, kw_only=True):
    """An option or an environment variable as the engine declares it."""

    name: str
    """Name of the field, or of the variable."""
    variable: bool = False
    flags: tuple[str, ...] = ()
    """As people write them, without dashes."""
    type: str = "str"
    choices: tuple[str, ...] = ()
    default: Any = None
    """UNKNOWN when it is computed."""
    help: str = ""
    deprecated: dict[str, str] = {}
    """Flag -> what the engine says of it, for the spellings that it wants to see no more."""
    place: Place | None = None

    @property
    def switch(self) -> bool:
        return self.type == "bool"

    @property
    def title(self) -> str:
        return self.name if self.variable or not self.flags else self.flags[0]


class Options:
    """All options of one package."""

    def __init__(self, package: Package, layout: Layout) -> None:
        self.package = package
        self.layout = layout
        self._fold = Fold(_Constants(package))

    def in_arguments(self, module: Module) -> bool:
        """Whether a file belongs to the resolution of options."""
        return module.file.removeprefix(f"{self.package.name}/").startswith(self.layout.arguments)

    @cached_property
    def fields(self) -> dict[str, Option]:
        """Options by field name."""
        found: dict[str, Option] = {}
        for module in self._modules(self.layout.declared_in):
            for option in self._declared(module):
                found.setdefault(option.name, option)
        for module in self._modules(self.layout.declared_in):
            for name, flags, keywords, line in _add_arguments(module):
                before = found.get(name, Option(name=name, place=Place(module.file, line)))
                found[name] = self._merged(before, flags, keywords, module, line)
        return found

    @cached_property
    def variables(self) -> dict[str, Option]:
        """Environment variables that the engine declares; it reads others as well."""
        module = self.package.module(self.package.root / self.layout.variables)
        found: dict[str, Option] = {}
        for cls in module.classes.values() if module else ():
            for statement in cls.body:
                match statement:
                    case ast.Assign(
                        targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id=kind), args=arguments)
                    ) if kind.startswith("Env"):
                        assert module is not None
                        default = self._constant(arguments[0], module) if arguments else None
                        found[name] = Option(
                            name=name,
                            variable=True,
                            type=kind.removeprefix("Env").lower(),
                            default=default,
                            place=Place(module.file, statement.lineno),
                        )
        return found

    def find(self, written: str) -> Option | None:
        """What a user means by `--tp-size`, `tp_size`, `tensor-parallel-size`, or the name of a variable."""
        if is_variable(written):
            return self.variables.get(written) or Option(name=written, variable=True, default=None)
        word = written.lstrip("-").replace("_", "-")
        for option in self.fields.values():
            if word in option.flags or option.name == word.replace("-", "_"):
                return option
        return None

    def near(self, written: str) -> list[str]:
        """Options that look like the word."""
        word = written.lstrip("-").replace("_", "-")
        flags = [flag for option in self.fields.values() for flag in option.flags]
        longer = [flag for flag in flags if flag.startswith(word)]
        return (longer or difflib.get_close_matches(word, flags, 3, 0.75))[:3]

    def _modules(self, places: Sequence[str]) -> Iterator[Module]:
        for place in places:
            base = self.package.root / place
            for path in self.package.files:
                if path == base or base in path.parents:
                    module = self.package.module(path)
                    if module:
                        yield module

    def _declared(self, module: Module) -> Iterator[Option]:
        """`name: A[type, Arg(...)] = default`, or the plain dataclass field of older versions."""
        newer = "/fields/" in module.file
        for cls in module.classes.values():
            if not newer and cls.name != "ServerArgs":
                continue
            for statement in cls.body:
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                        place = Place(module.file, statement.lineno)
                        default = self._constant(value, module) if value else None
                        yield self._field(name, annotation, default, place, module)

    def _field(self, name: str, annotation: ast.expr, default: Any, place: Place, module: Module) -> Option:
        match annotation:
            case ast.Subscript(value=ast.Name(id="A" | "Annotated"), slice=ast.Tuple(elts=[kind, *extra])):
                pass
            case kind:
                extra = []
        flags: tuple[str, ...] = ()
        choices: tuple[str, ...] = _literal(kind)
        text = ""
        for one in extra:
            match one:
                case ast.Call(func=ast.Name(id="Arg"), keywords=keywords):
                    flags = (name.replace("_", "-"),)
                    given = {word.arg: word.value for word in keywords if word.arg}
                    values = {key: self._constant(value, module) for key, value in given.items()}
                    if values.get("no_cli") is True:
                        flags = ()
                    elif isinstance(values.get("cli_name"), str):
                        flags = (values["cli_name"].lstrip("-"),)
                    flags += tuple(str(flag).lstrip("-") for flag in _strings(values.get("aliases")))
                    choices = tuple(_strings(values.get("choices"))) or choices
                    text = values["help"] if isinstance(values.get("help"), str) else text
                case ast.Constant(value=str(told)):  # the bare help text, which makes it a flag as well
                    flags, text = flags or (name.replace("_", "-"),), told
        return Option(
            name=name, flags=flags, type=_type(kind), choices=choices, default=default, help=text, place=place
        )

    def _merged(
        self, before: Option, flags: tuple[str, ...], keywords: dict[str, ast.expr], module: Module, line: int
    ) -> Option:
        """A field with what `add_argument` says; one that has its flags already gains a spelling."""
        values = {key: self._constant(value, module) for key, value in keywords.items()}
        action = keywords.get("action")
        told = ast.unparse(action) if action else ""
        kind = before.type
        if "store_true" in told or "StoreTrue" in told or "Boolean" in told:
            kind = "bool"
        elif isinstance(keywords.get("type"), ast.Name) and before.type == "str":
            kind = ast.unparse(keywords["type"])
        text = values["help"] if isinstance(values.get("help"), str) else ""
        old = "deprecated" in text.lower() or "Deprecated" in told
        return Option(
            name=before.name,
            flags=tuple(dict.fromkeys([*before.flags, *flags])),
            type=kind if kind in ("int", "float", "bool") else "str",
            choices=before.choices or tuple(_strings(values.get("choices"))),
            default=before.default,
            help=before.help or text,
            deprecated={**before.deprecated, **(dict.fromkeys(flags, text) if old else {})},
            place=before.place if before.flags else Place(module.file, line),
        )

    def _constant(self, node: ast.expr, module: Module) -> Any:
        value = self._fold.value(node, Scope(module))
        return value.value if isinstance(value, Member) else value


def is_variable(written: str) -> bool:
    """Whether a word names an environment variable: capitals, digits and underscores."""
    return written.isidentifier() and written.upper() == written and not written.startswith("-")


def _add_arguments(module: Module) -> Iterator[tuple[str, tuple[str, ...], dict[str, ast.expr], int]]:
    """(field, flags, keywords, line) of every `add_argument`."""
    for node in ast.walk(module.tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="add_argument"), args=arguments, keywords=keywords):
                texts = [one.value for one in arguments if isinstance(one, ast.Constant)]
                flags = tuple(
                    one.lstrip("-") for one in texts if isinstance(one, str) and one.startswith("--")
                )
                if flags:
                    given = {word.arg: word.value for word in keywords if word.arg}
                    yield _field_name(flags, given), flags, given, node.lineno


def _field_name(flags: tuple[str, ...], keywords: dict[str, ast.expr]) -> str:
    """`default=ServerArgs.tp_size` says it even where argparse's own name is another."""
    match keywords.get("default"), keywords.get("dest"):
        case ast.Attribute(value=ast.Name(id="ServerArgs"), attr=name), _:
            return name
        case _, ast.Constant(value=str(name)):
            return name
    return flags[0].replace("-", "_")


def _type(kind: ast.expr) -> str:
    text = ast.unparse(kind).replace("Optional[", "").replace("| None", "").strip(" ]")
    return text if text in ("int", "float", "bool") else "str"


def _literal(kind: ast.expr) -> tuple[str, ...]:
    for node in ast.walk(kind):
        match node:
            case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=parts)):
                return tuple(str(part.value) for part in parts if isinstance(part, ast.Constant))
    return ()


def _strings(value: Any) -> list[str]:
    if isinstance(value, Unknown) or not isinstance(value, list):
        return []
    return [
        str(one.value if isinstance(one, Member) else one) for one in value if not isinstance(one, Unknown)
    ]


class _Constants:
    """A reader that knows no option: folds constants alone."""

    def __init__(self, package: Package) -> None:
        self._package = package

    def value(self, node: ast.expr, scope: Scope) -> tuple[bool, Any]:
        return False, UNKNOWN

    def mentions(self, node: ast.expr, scope: Scope) -> bool:
        return False

    def concerns(self, node: ast.expr, scope: Scope) -> bool:
        return True

    def settled(self, scope: Scope) -> bool:
        return True

    def passes_on(self, call: ast.Call, scope: Scope) -> bool:
        return False

    def sources(self, name: str, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        return []

    def resolve(self, module: Module, name: str) -> tuple[Module, Definition] | None:
        return self._package.resolve(module, name)

    def module_scope(self, module: Module) -> Scope:
        return Scope(module)

    def focus_key(self) -> str:
        return ""

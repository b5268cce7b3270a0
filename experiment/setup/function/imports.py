"""The modules that a train function imports, found without running or importing its code.

No library does this: `modulefinder` and its kind follow the files of a program, and run nothing of
a function in a notebook; cloudpickle knows the objects that a function refers to, not its imports.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import itertools
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from typing import Any

from experiment.setup.function.modules import (
    absolute_name,
    find_module,
    is_not_installed,
    name_of,
    public_part,
    top_of,
)
from experiment.setup.settings import Settings

WORTH_IT = frozenset(
    (
        "keras",
        "lightgbm",
        "matplotlib",
        "numpy",
        "pandas",
        "PIL",
        "scipy",
        "seaborn",
        "skimage",
        "sklearn",
        "statsmodels",
        "tensorflow",
        "tensorflow_probability",
        "torch",
        "torchvision",
        "transformers",
        "xgboost",
    )
)
"""Packages that take long to import, and start no threads while they are imported."""

FRAMEWORKS = frozenset(("keras", "tensorflow"))
"""Packages that an executor must have if a function imports them and the driver has them."""

_LARGEST = 100  # elements of a collection that is looked through
_MOST = 10_000  # objects that are looked at; more would take longer than an import
_MOST_FILES = 300
_NOT_USERS = ("experiment", "search", "spark_jobs", "py4j", "pyspark")
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: a class of Python, or one that behaves like it


@dataclass(frozen=True, slots=True, kw_only=True)
class Preload:
    """The modules to import once for all trials of a search.

    Attributes:
        required: Modules that executors must be able to import.
        guessed: Modules that the train function seems to import; their errors are ignored, since a
            trial may never import them.
    """

    required: tuple[str, ...] = ()
    guessed: tuple[str, ...] = ()

    @property
    def modules(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.required, *self.guessed)


def preload_of(settings: Settings, train: Callable[..., Any] | None) -> Preload:
    """Return the modules to import once for all trials of a search.

    Args:
        settings: The search's settings.
        train: The train function; not needed with `preload` in the settings.
    """
    if settings.isolation == "none":  # trials share the slot's process
        return Preload()
    if settings.preload is not None:
        return Preload(required=tuple(settings.preload))
    found = imports_of(train) if train is not None else ()
    required = tuple(name for name in found if top_of(name) in FRAMEWORKS)
    return Preload(required=required, guessed=tuple(name for name in found if name not in required))


def imports_of(train: Callable[..., Any]) -> tuple[str, ...]:
    """Return the modules of `WORTH_IT` that a function imports or refers to, in order of discovery.

    The function's code is followed into the user's functions, classes and modules that it reaches,
    also those that are not loaded yet. Imports inside `try` with `except`, names that are computed,
    and `exec` are left out, and branches that are never taken are not: a wrong guess costs time
    only.

    Args:
        train: The function, or any other object that can be called.
    """
    return tuple(_Walk(train).found)


class _Walk:
    """Follows references from an object, one after the other: chains of them may be long.

    Args:
        start: The first object.

    Attributes:
        found: The modules that were found; a dict, for its order.
    """

    def __init__(self, start: object) -> None:
        self.found: dict[str, None] = {}
        self._seen: dict[int, object] = {}  # keeps the objects, so that ids stay unique
        self._modules: set[str] = set()
        self._files = 0
        self._users = {top_of(_module_of(start)): True}  # also that of an installed package
        self._users |= dict.fromkeys((*sys.stdlib_module_names, *_NOT_USERS, *WORTH_IT), False)
        self._next = [start]
        while self._next and len(self._seen) < _MOST:
            value = self._next.pop()
            if id(value) not in self._seen:
                self._seen[id(value)] = value
                # The user's objects and finders may raise anything, and this is only a guess.
                with contextlib.suppress(Exception):
                    self._look_at(value)

    def _follow(self, *values: object) -> None:
        self._next.extend(reversed(values))  # the first of them is looked at first

    def _look_at(self, value: Any) -> None:
        kind = type(value)  # not isinstance(), which runs code of a proxy
        if issubclass(kind, types.ModuleType):
            self._import(name_of(value))
        elif kind is functools.partial:
            self._follow(value.func, *value.args, *value.keywords.values())
        elif kind is types.MethodType:
            self._follow(value.__func__, value.__self__)
        elif kind in (staticmethod, classmethod):
            self._follow(value.__func__)
        elif kind is property:
            self._follow(value.fget, value.fset)
        elif kind is types.FunctionType:
            self._look_at_function(value)
        elif issubclass(kind, type):
            self._look_at_class(value)
        elif kind in (list, tuple, set, frozenset):
            self._follow(*(value if len(value) <= _LARGEST else ()))
        elif kind is dict:
            self._follow(*(value.values() if len(value) <= _LARGEST else ()))
        elif kind.__module__ != "builtins":
            self._follow(kind, *_attributes(value).values())

    def _look_at_function(self, function: types.FunctionType) -> None:
        if self._is_foreign(function.__module__):
            return
        names = function.__globals__
        self._look_at_code(function.__code__, str(names.get("__package__") or ""), names)
        if function.__module__ in sys.modules:  # an executor imports it, and runs its imports
            self._import(function.__module__)
        self._follow(*_closure(function), *(function.__defaults__ or ()))
        self._follow(*(function.__kwdefaults__ or {}).values(), *vars(function).values())

    def _look_at_class(self, kind: type) -> None:
        if not self._is_foreign(kind.__module__):
            self._follow(*kind.__mro__[1:], *vars(kind).values())

    def _is_foreign(self, module: str | None) -> bool:
        """Return whether an object's module is not the user's; note it if it is of `WORTH_IT`."""
        if not module or module == "__main__":
            return False
        if top_of(module) in WORTH_IT:
            self._import(public_part(module))
        return not self._is_users(module)

    def _look_at_code(
        self, code: types.CodeType, package: str, names: Mapping[str, Any], nested: bool = True
    ) -> None:
        """Follow the imports and the global names of some code.

        Args:
            code: The code of a function or module.
            package: Its package, for relative imports.
            names: The global names; empty for a module that is not loaded.
            nested: Whether the functions in it may be called.
        """
        bytecode = dis.Bytecode(code)
        instructions = [one for one in bytecode if one.opname != "EXTENDED_ARG"]
        for number, instruction in enumerate(instructions):
            if instruction.opname == "IMPORT_NAME" and not _is_guarded(
                instruction.offset, bytecode, instructions
            ):
                level, members = _operands(instructions[max(0, number - 4) : number])
                module = absolute_name(instruction.argval, level, package)
                self._import(module)
                for member in members:
                    self._import_member(module, member)
            elif instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                self._follow(*self._reached(instructions, number, names))
        for constant in code.co_consts:
            # A class body runs with its module; a function of it only if it is called.
            if isinstance(constant, types.CodeType) and (nested or not _is_function(constant)):
                self._look_at_code(constant, package, names, nested)

    def _import(self, module: str) -> None:
        """Note a module that counts; follow the imports of a module of the user."""
        if not module or module == "__main__" or module in self._modules:
            return
        self._modules.add(module)
        if top_of(module) in WORTH_IT:
            if find_module(top_of(module)) is not None:
                self.found[module] = None
        elif self._is_users(module):
            if "." in module:
                self._import(module.rpartition(".")[0])
            self._look_at_file(module)

    def _import_member(self, module: str, member: str) -> None:
        """Note `from module import member` if the member is a module of its own."""
        name = f"{module}.{member}"
        if (top_of(module) in WORTH_IT or self._is_users(module)) and find_module(name) is not None:
            self._import(name)

    def _look_at_file(self, module: str) -> None:
        spec = find_module(module)
        self._files += 1
        if spec is None or not (spec.origin or "").endswith(".py") or self._files > _MOST_FILES:
            return
        try:
            # Not compiled with warnings off: that would change the filters of all threads.
            code = SourceFileLoader(module, str(spec.origin)).get_code(module)
        except Exception:  # its import shows what is wrong
            return
        if code is None:
            return
        package = module if spec.submodule_search_locations else module.rpartition(".")[0]
        # The functions of a loaded module are followed as objects, those that are reached.
        self._look_at_code(code, package, {}, nested=module not in sys.modules)

    def _reached(
        self, instructions: list[dis.Instruction], number: int, names: Mapping[str, Any]
    ) -> Iterator[object]:
        """Yield the global that an instruction loads, and what is reached by its attributes.

        Attributes of a user's module only: a package may import modules when one is read.
        """
        name = instructions[number].argval
        if name not in names:
            return
        value = names[name]
        yield value
        for following in itertools.islice(instructions, number + 1, None):
            if following.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
                return
            if not issubclass(type(value), types.ModuleType) or not self._is_users(name_of(value)):
                return
            members = object.__getattribute__(value, "__dict__")
            if following.argval not in members:
                return
            value = members[following.argval]
            yield value

    def _is_users(self, module: str) -> bool:
        """Return whether a module is one of the user: not Python's, installed, or ours."""
        top = top_of(module)
        if top not in self._users:
            self._users[top] = is_not_installed(top)
        return self._users[top]


def _module_of(start: Any) -> str:
    """Return the name of the module that defines a function or a class, or that of an object."""
    while type(start) is functools.partial:
        start = start.func
    if type(start) is types.MethodType:
        start = start.__func__
    defined = start if type(start) in (types.FunctionType, type) else type(start)
    return str(defined.__module__)


def _attributes(value: object) -> Mapping[str, Any]:
    """Return the attributes of an object of the user; none where reading them runs code."""
    for kind in type(value).__mro__:
        if "__dict__" in vars(kind) and not (
            kind.__flags__ & _HEAP_TYPE
            and type(vars(kind)["__dict__"]) is types.GetSetDescriptorType
        ):
            return {}
    try:
        attributes: Mapping[str, Any] = object.__getattribute__(value, "__dict__")
    except AttributeError:  # one with slots
        return {}
    return attributes if len(attributes) <= _LARGEST else {}


def _closure(function: types.FunctionType) -> Iterator[object]:
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty cell
            continue


def _is_guarded(offset: int, bytecode: dis.Bytecode, instructions: list[dis.Instruction]) -> bool:
    """Return whether an instruction is inside `try` with `except`, which may expect its failure.

    `with` and `finally` have handlers, too, but these raise the error again.
    """
    entries = bytecode.exception_entries  # type: ignore[attr-defined]  # not in typeshed
    for _ in entries:  # from the innermost handler outwards
        target = next((one.target for one in entries if one.start <= offset < one.end), None)
        if target is None:
            return False
        if _is_except([one.opname for one in instructions if one.offset >= target]):
            return True
        offset = target
    return False


def _is_except(handler: list[str]) -> bool:
    """Return whether the code of `except` begins with these instructions."""
    if handler[0] != "PUSH_EXC_INFO":
        return False
    over = ("POP_TOP", "RERAISE", "PUSH_EXC_INFO")  # none of them is in the class of an error
    first = set(itertools.takewhile(lambda name: name not in over, handler[1:]))
    is_bare = handler[1] == "POP_TOP"
    return is_bare or not first.isdisjoint(("CHECK_EXC_MATCH", "CHECK_EG_MATCH"))


def _operands(before: list[dis.Instruction]) -> tuple[int, tuple[str, ...]]:
    """Return the level and the members of the import that comes after these instructions."""
    loads = ("LOAD_CONST", "LOAD_SMALL_INT")
    level, members = [i.argval for i in before if i.opname in loads][-2:]
    return level, members or ()


def _is_function(code: types.CodeType) -> bool:
    return bool(code.co_flags & inspect.CO_OPTIMIZED)  # not the body of a module or a class

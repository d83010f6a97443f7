"""A user's own domain: FILE.py:FUNCTION, whose function returns a `Domain`. Importing it imports JAX.

The function's keyword arguments with plain defaults are the domain's settings, so that they are flags of the
command line and lines of config.toml.
"""

import functools
import hashlib
import inspect
import sys
import traceback
import types
from collections.abc import Callable, Sequence
from dataclasses import asdict, field, make_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args, get_origin, get_type_hints

from baddr.domains.entry import FILE_DEPTH, Entry, Names, Preset, file_presets, numbered, returns_range
from baddr.errors import UserError, shown
from baddr.files.settings import is_utf8

PLAIN = (bool, int, float, str)
MODULE = "_baddr_own_"  # how the names of modules start that users' files become


def own_entry(name: str) -> Entry:
    """The entry of FILE.py:FUNCTION; FUNCTION is make_domain where it is not named."""
    path, function, source = read_source(name)
    return _entry(path, function or "make_domain", source)


def read_source(name: str) -> tuple[Path, str, bytes]:
    """The absolute path, the NAME (may be empty) and the content of FILE.py:NAME."""
    file, _, thing = name.partition(".py:") if ".py:" in name else (name.removesuffix(".py"), "", "")
    path = Path(f"{file}.py").absolute()
    if not is_utf8(str(path)) or not is_utf8(thing):
        raise UserError(f"The name of a file must be text in UTF-8, not {shown(str(path))}.")
    try:
        return path, thing, path.read_bytes()
    except FileNotFoundError:
        raise UserError(f"There is no file {file}.py.") from None
    except OSError as error:
        raise UserError(f"Cannot read {file}.py: {error.strerror}.") from error


def digest_of(name: str, source: bytes) -> str:
    """A short hash of FILE.py:NAME."""
    return hashlib.sha256(name.encode() + b"\n" + source).hexdigest()[:8]


@functools.cache  # the same settings class for the same content: experiments with it are then equal
def _entry(path: Path, name: str, source: bytes) -> Entry:
    function = getattr(load(path, source), name, None)
    if not callable(function):
        raise UserError(f"{path} has no function {name!r} that returns a Domain.")
    digest = digest_of(name, source)

    def make_domain(settings: Any) -> Any:
        """Named by a hash of the source: trained priors are kept under this name."""
        return replace(_made(path, function, settings), name=f"{path.stem}-{digest}")

    def well_formed(settings: Any) -> Any:
        from baddr.domains.check import refuse_malformed

        domain = make_domain(settings)
        refuse_malformed(domain)
        return domain

    return Entry(
        summary=(inspect.getdoc(function) or path.name).splitlines()[0],
        settings=settings_class(path, name, function)(),
        names=lambda settings: names_of(well_formed(settings)),
        presets=lambda settings: presets_of(well_formed(settings)),
        make_domain=make_domain,
        source=path,
    )


def _made(path: Path, function: Callable[..., Any], settings: Any) -> Any:
    """What the user's function returns for these settings, if that is a `Domain`."""
    from baddr.domains.domain import Domain

    try:
        domain = function(**asdict(settings))
    except UserError:
        raise
    except Exception as error:
        raise UserError(told(error, path, f"{function.__name__}() raised")) from error
    if not isinstance(domain, Domain):
        kind = type(domain).__name__
        raise UserError(
            f"{path}: {function.__name__}() must return a baddr Domain, not a value of type {kind}."
        )
    return domain


def load(path: Path, source: bytes) -> types.ModuleType:
    """The file as a module: compiled from the content that was hashed; it finds what lies beside it."""
    module = types.ModuleType(f"{MODULE}{path.stem}_{hashlib.sha256(source).hexdigest()[:8]}")
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    sys.modules[module.__name__] = module  # dataclasses and equinox look there
    try:
        exec(compile(source, str(path), "exec"), module.__dict__)
    except Exception as error:
        del sys.modules[module.__name__]
        raise UserError(told(error, path, "importing it raised")) from error
    return module


def line_of(error: Exception) -> int | None:
    """The last line of a user's file that an exception passed."""
    frames = traceback.walk_tb(error.__traceback__)
    lines = [line for frame, line in frames if frame.f_globals.get("__name__", "").startswith(MODULE)]
    return lines[-1] if lines else None


def told(error: Exception, path: Path, what: str) -> str:
    """An exception as one sentence with the last line of the file that it passed."""
    lines = [
        frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)
    ]
    if isinstance(error, SyntaxError) and error.filename == str(path):
        lines, message = [error.lineno], error.msg
    else:
        message = " ".join(str(error).split("\n\n")[0].split())
    where = f"{path}, line {lines[-1]}" if lines else f"{path}"
    return f"{where}: {what} {type(error).__name__}: {message.rstrip('.')}."


def settings_class(path: Path, name: str, function: Callable[..., Any], but: Sequence[str] = ()) -> type:
    """The frozen dataclass of a function's keyword arguments that have plain defaults; `but` some, which are
    given otherwise."""
    try:
        hints = get_type_hints(function)
    except Exception:  # an annotation that names nothing: the defaults say enough
        hints = {}
    chosen = []
    for argument in inspect.signature(function).parameters.values():
        if argument.kind in (argument.VAR_POSITIONAL, argument.VAR_KEYWORD) or argument.name in but:
            continue
        if argument.default is argument.empty or argument.kind == argument.POSITIONAL_ONLY:
            raise UserError(
                f"{path}: argument {argument.name!r} of {name} must be a keyword argument with a default."
            )
        kind = _kind(hints.get(argument.name), argument.default)
        if argument.name in ("name", "problems"):
            raise UserError(
                f"{path}: argument {argument.name!r} of {name} must be renamed: this name is taken."
            )
        if kind is not None:  # others keep their defaults
            default = float(argument.default) if kind is float else argument.default
            chosen.append((argument.name, kind, field(default=default)))
    summary = (inspect.getdoc(function) or name).splitlines()[0]
    space = {"problems": lambda self: [], "__doc__": summary, "__module__": function.__module__}
    fields = [*chosen, ("name", ClassVar[str], f"{path}:{name}")]
    return make_dataclass("Own", fields, namespace=space, frozen=True)


def _kind(hint: Any, default: Any) -> Any:
    """The type of a setting: as annotated, or its default's; None where that is no plain value."""
    origin = get_origin(hint)
    if isinstance(default, tuple):
        plain = all(type(value) in PLAIN for value in default)
        if plain and origin is tuple and all(part in (*PLAIN, ...) for part in get_args(hint)):
            return hint
        kinds = {type(value) for value in default}
        return tuple[kinds.pop(), ...] if plain and len(kinds) == 1 else None
    if type(default) not in PLAIN:
        return None
    if origin is Literal or (hint is float and type(default) is int):
        return hint
    return type(default)


def names_of(domain: Any) -> Names:
    """Those of the domain, or numbers."""
    return domain.names or numbered(domain.pomdp)


def presets_of(domain: Any) -> dict[str, Preset]:
    """Those of the domain; others explore by the range of returns of the rewards on random walks."""
    if {"quick", "paper"} <= set(domain.presets):
        return dict(domain.presets)
    from baddr.domains.probabilities import walk

    r, pomdp = walk(domain.pomdp).r, domain.pomdp
    depth = min(FILE_DEPTH, pomdp.horizon)
    u = returns_range(float(r.max() - r.min()), pomdp.discount, depth)
    bounded = None not in (domain.lower, domain.upper)  # they make up for the size
    return file_presets(u, pomdp.num_states, bounded) | dict(domain.presets)

"""What the fields of a settings class may hold, by their types: one check, whether a value comes from a flag,
a file or Python. Needs no JAX."""

import functools
import types
from dataclasses import fields, is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from baddr.errors import UserError, shown

LARGEST_INT = 2**31 - 1  # JAX counts in int32
LARGEST_FLOAT = 3.4028234663852886e38  # and computes in float32

PLAIN = (bool, int, float, str)


def problems(settings: Any, prefix: str = "") -> list[str]:
    """What is wrong with some settings. Only values of the right types are asked for their ranges."""
    return misfits(settings, prefix) or (settings.problems() if hasattr(settings, "problems") else [])


def refuse(sentences: list[str], less: str = "") -> None:
    """One error of all that is wrong; `less` is left out of names (who calls Python knows no domain.X)."""
    if sentences:
        said = "; ".join(sentences)
        raise UserError(f"{said.replace(less, '') if less else said}.")


def misfits(settings: Any, prefix: str = "", but: tuple[str, ...] = ()) -> list[str]:
    """A sentence for each field whose value is not of its type, named as its flag is; not for those of `but`.
    Classes in which types are not plain (arrays, say) are passed over."""
    if not is_dataclass(settings):
        return []
    kinds, found = types_of(type(settings)), []
    for name in (f.name for f in fields(settings) if f.name not in but):
        if is_default(type(settings), name, getattr(settings, name)):
            continue
        value, flag = getattr(settings, name), prefix + name.replace("_", "-")
        if is_dataclass(value):
            found += misfits(value, f"{flag}.")
        elif sentence := misfit(value, kinds.get(name, Any)):
            found.append(f"{flag} {sentence}")
    return found


def is_default(kind: type, name: str, value: Any) -> bool:
    """What a class has by default is right, also where it is infinite."""
    default = next(f.default for f in fields(kind) if f.name == name)
    return type(value) is type(default) and not is_dataclass(value) and bool(value == default)


@functools.cache
def types_of(kind: type) -> dict[str, Any]:
    """The types of a class's fields; none where an annotation names something that is not there."""
    try:
        return get_type_hints(kind)
    except (NameError, AttributeError, TypeError, SyntaxError):  # a text that is no type, or of another place
        return {}


def is_checked(kind: Any) -> bool:
    """Whether `misfit` knows what a type means."""
    return kind in PLAIN or get_origin(kind) in (Literal, Union, types.UnionType, tuple)


def misfit(value: Any, kind: Any) -> str | None:
    """How a value fails to be of a type, as the end of a sentence; None where it is, or nothing is known."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        fits = any(type(value) is type(part) and value == part for part in parts)
        return None if fits else f"must be {_either(map(str, parts))}, not {shown(value)}"
    if origin in (Union, types.UnionType):
        return _misfit_of_all(value, parts)
    if origin is tuple:
        return _misfit_of_tuple(value, parts)
    if kind in PLAIN:
        return _misfit_of_plain(value, kind)
    return None


def _misfit_of_all(value: Any, kinds: tuple[Any, ...]) -> str | None:
    found = [None if kind is type(None) and value is None else misfit(value, kind) for kind in kinds]
    found = [x for kind, x in zip(kinds, found, strict=True) if kind is not type(None) or value is None]
    if None in found:
        return None
    about_parts = [x for x in found if x and isinstance(value, tuple) and x.startswith("must have")]
    return (about_parts or found)[0]


def _misfit_of_tuple(value: Any, parts: tuple[Any, ...]) -> str | None:
    if not isinstance(value, tuple):
        return f"must be a list, not {shown(value)}"
    kinds = (parts[0],) * len(value) if parts[1:] == (...,) else parts
    if len(kinds) != len(value):
        return f"must have {len(kinds)} entries, not {len(value)}"
    wrong = [x for x in map(misfit, value, kinds) if x is not None]
    return f"must have entries that fit: one {wrong[0]}" if wrong else None


def _misfit_of_plain(value: Any, kind: type) -> str | None:
    if type(value) is not kind and not (kind is float and type(value) is int):
        return f"must be of type {kind.__name__}, not {shown(value)}"
    if kind is int and not -LARGEST_INT <= value <= LARGEST_INT:
        return f"must be at most {LARGEST_INT} (it is stored in 32 bits), not {shown(value)}"
    if kind is float and not abs(value) <= LARGEST_FLOAT:
        return f"must be a finite number, at most {LARGEST_FLOAT:.1e} (float32), not {shown(value)}"
    if kind is str and not is_utf8(str(value)):
        return f"must be text in UTF-8, not {shown(value)}"
    return None


def is_utf8(text: str) -> bool:
    """Not with bytes of a file name that are no characters."""
    return not any(0xD800 <= ord(c) <= 0xDFFF for c in text)


def _either(words: Any) -> str:
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last

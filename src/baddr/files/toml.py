"""Settings as TOML: frozen dataclasses of numbers, strings, flags, tuples of these and nested dataclasses."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin

from baddr.errors import UserError, shown
from baddr.files.settings import LARGEST_FLOAT, is_checked, is_default, misfit, types_of

LARGEST = 1 << 20  # bytes of a config file
DEEPEST = re.compile(r"(?:\.[^.\n,\[\]]{0,40}){64}")  # parts of a dotted name


def to_toml(values: Mapping[str, Any]) -> str:
    """Plain values and tables of them."""
    import tomli_w

    return tomli_w.dumps(values)


def read_toml(path: Path) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
        text = content.decode("utf-8", "ignore" if len(content) > LARGEST else "strict")
        if len(content) > LARGEST or DEEPEST.search(text):  # a parser would take memory without end
            raise UserError(f"{path} is not valid TOML for settings: it is too large, or nested too deeply.")
        return tomllib.loads(text)
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}: {error}.") from error
    except RecursionError:
        raise UserError(f"{path} is not valid TOML for settings: it is nested too deeply.") from None
    except ValueError as error:  # also of numbers with too many digits
        raise UserError(f"{path} is not valid TOML: {error}.") from error


def merge(settings: Any, values: Mapping[str, Any], where: str) -> Any:
    """`settings` with the values of a TOML table in place of its own."""
    known = {f.name: getattr(settings, f.name) for f in fields(settings)}
    kinds, changed = types_of(type(settings)), {}
    for name, value in values.items():
        field = name.replace("-", "_")
        if field not in known:
            raise UserError(f"{where}: there is no setting {shown(name)}; known: {', '.join(known)}.")
        old = known[field]
        if is_dataclass(old):
            if not isinstance(value, Mapping):
                raise UserError(f"{where}: {shown(name)} must be a table.")
            changed[field] = merge(old, value, f"{where}, [{name}]")
            continue
        kind = kinds.get(field)
        kind = kind if is_checked(kind) else type(old)
        changed[field] = _typed(value, kind)
        if is_default(type(settings), field, changed[field]):
            continue
        if sentence := misfit(changed[field], kind):
            raise UserError(f"{where}: {name} {sentence}.")
    return type(settings)(**{**known, **changed})


def _typed(value: Any, kind: Any) -> Any:
    """A value of TOML as one of a type, where that is another: tuples are lists there, and 1 may be 1.0."""
    if isinstance(value, list):
        entries = next((get_args(part) for part in (kind, *get_args(kind)) if get_origin(part) is tuple), ())
        return tuple(_typed(x, entries[0] if entries else Any) for x in value)
    if type(value) is int and kind is float and abs(value) <= LARGEST_FLOAT:
        return float(value)
    return value

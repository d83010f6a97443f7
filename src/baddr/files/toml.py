"""Settings as TOML: frozen dataclasses of numbers, strings, flags, tuples of these and nested dataclasses."""

import tomllib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

from baddr.errors import UserError


def to_toml(values: Mapping[str, Any]) -> str:
    """Plain values and tables of them."""
    import tomli_w

    return tomli_w.dumps(values)


def read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise UserError(f"There is no file {path}.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"Cannot read {path}: {error}.") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}.") from error


def merge(settings: Any, values: Mapping[str, Any], where: str) -> Any:
    """`settings` with the values of a TOML table in place of its own."""
    known = {f.name: getattr(settings, f.name) for f in fields(settings)}
    changed = {}
    for name, value in values.items():
        field = name.replace("-", "_")
        if field not in known:
            raise UserError(f"{where}: there is no setting {name!r}; known: {', '.join(known)}.")
        old = known[field]
        if is_dataclass(old):
            if not isinstance(value, Mapping):
                raise UserError(f"{where}: {name!r} must be a table.")
            changed[field] = merge(old, value, f"{where}, [{name}]")
        elif isinstance(old, float) and type(value) is int:
            changed[field] = float(value)
        elif isinstance(value, str | list) and _may_be_tuple(settings, field):
            changed[field] = tuple(value) if isinstance(value, list) else value
        elif type(value) is type(old):
            changed[field] = value
        else:
            raise UserError(f"{where}: {name} must be of type {type(old).__name__}, not {value!r}.")
    return type(settings)(**{**known, **changed})


def _may_be_tuple(settings: Any, field: str) -> bool:
    kind = get_type_hints(type(settings))[field]
    return any(get_origin(part) is tuple for part in (kind, *get_args(kind)))

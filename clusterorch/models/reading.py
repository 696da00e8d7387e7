"""Here lives the reading of model files: TOML in, overlays merged, a checked `ModelSpec` out."""

from __future__ import annotations

import hashlib
import json
import tomllib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

import clusterorch
from clusterorch.errors import InvalidModel, UnknownModel
from clusterorch.models.provenance import ORIGINS
from clusterorch.models.spec import ModelSpec

_PACKAGE = Path(clusterorch.__file__).parent
_NAMED = ("name", "from")  # what identifies a table inside a list of tables


def models_folder() -> Path:
    """Where the packaged model files lie: inside the wheel, or beside the package in a checkout."""
    packaged = _PACKAGE / "_models"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "models"


def available() -> list[str]:
    """Names of the models that ship with the package."""
    return sorted(path.stem for path in models_folder().glob("*.toml"))


def locate(name: str | Path) -> Path:
    """The file of a model name or path.

    Raises:
        UnknownModel: no packaged model has that name and no file that path.
    """
    path = Path(name)
    if path.suffix == ".toml" or len(path.parts) > 1:
        if not path.is_file():
            raise UnknownModel(f"{path}: no such model file")
        return path
    packaged = models_folder() / f"{name}.toml"
    if not packaged.is_file():
        raise UnknownModel(f"model {str(name)!r} is not one of {', '.join(available())}; give a name or a .toml path")
    return packaged


def locate_overlay(name: str | Path) -> Path:
    """The file of an overlay: a path, or a name under `models/overlays`."""
    path = Path(name)
    if path.is_file():
        return path
    packaged = models_folder() / "overlays" / f"{name}.toml"
    if not packaged.is_file():
        known = ", ".join(sorted(p.stem for p in packaged.parent.glob("*.toml"))) or "none"
        raise UnknownModel(f"overlay {str(name)!r} is neither a file nor one of: {known}")
    return packaged


def read_toml(path: Path) -> dict[str, Any]:
    """Parse one TOML file.

    Raises:
        InvalidModel: unreadable, not UTF-8 or not TOML; says where.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidModel(str(path), "file", f"cannot be read ({error.strerror})", "check the path") from error
    except UnicodeDecodeError as error:
        raise InvalidModel(str(path), f"byte {error.start}", "not UTF-8 text", "save it as UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise InvalidModel(str(path), "syntax", str(error), "mend the TOML there") from error


def read_whole(path: Path) -> dict[str, Any]:
    """Parse a file and the `parts` that it names, relative to itself, as one.

    Raises:
        InvalidModel: as `read_toml`; a part names parts; or two of the files declare one thing.
    """
    whole = read_toml(path)
    parts = whole.pop("parts", [])
    for name in parts:
        part = read_toml(path.parent / name)
        for table, entries in part.items():
            if table == "parts" or (table in whole and not (isinstance(entries, list) and _listed(whole[table]))):
                fix = "a part adds tables to lists and new tables, and has no parts of its own"
                raise InvalidModel(str(path.parent / name), table, f"is in {path.name} already", fix)
            whole[table] = [*whole.get(table, []), *entries] if isinstance(entries, list) else entries
    return whole


def _listed(value: Any) -> bool:
    return isinstance(value, list)


def _identity(table: dict[str, Any]) -> tuple[Any, ...] | None:
    if "from" in table:
        return (table.get("from"), table.get("to"))
    return (table["name"],) if "name" in table else None


def merge(model: Any, overlay: Any) -> Any:
    """Lay an overlay over a model: tables merge by key, named list entries by name, rules go first.

    A list entry with `remove = true` deletes its namesake.  List entries without a name
    (rules of a signal, effects of an action) are put before those of the model, so they win.
    """
    if isinstance(model, dict) and isinstance(overlay, dict):
        merged = dict(model)
        for key, value in overlay.items():
            merged[key] = merge(merged[key], value) if key in merged else value
        if set(ORIGINS) & overlay.keys():
            merged = {k: v for k, v in merged.items() if k not in ORIGINS or k in overlay}
        return merged
    if isinstance(model, list) and isinstance(overlay, list) and all(isinstance(t, dict) for t in (*model, *overlay)):
        return _merge_tables(model, overlay)
    return overlay


def _merge_tables(model: list[dict[str, Any]], overlay: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if overlay and _identity(overlay[0]) is None:
        return [*overlay, *model]
    merged = {_identity(table): table for table in model}
    for table in overlay:
        key = _identity(table)
        if table.get("remove") is True:
            merged.pop(key, None)
        else:
            merged[key] = merge(merged[key], table) if key in merged else table
    return list(merged.values())


def read(path: Path, overlays: list[Path]) -> tuple[ModelSpec, dict[str, Any]]:
    """Read a model file with its overlays; also gives the merged raw tables.

    Raises:
        InvalidModel: names the file, the key and the way out.
    """
    raw = read_whole(path)
    for overlay in overlays:
        raw = merge(raw, read_whole(overlay))
    named = " + ".join(str(p) for p in (path, *overlays))
    try:
        return ModelSpec.model_validate(raw), raw
    except ValidationError as error:
        raise _as_invalid(named, raw, error) from error


def _as_invalid(file: str, raw: dict[str, Any], error: ValidationError) -> InvalidModel:
    first = error.errors()[0]
    key, here = [], raw
    for part in first["loc"]:
        here = here[part] if isinstance(here, (dict, list)) and _has(here, part) else None
        name = here.get("name") if isinstance(here, dict) else None
        key.append(f"{part}({name})" if isinstance(part, int) and name else str(part))
    fix = {
        "extra_forbidden": "remove the key or correct its spelling",
        "missing": "add the key",
        "less_than_equal": "give a smaller number",
        "greater_than_equal": "give a larger number",
        "greater_than": "give a larger number",
    }.get(first["type"], "see models/README.md")
    problem = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        problem = "unknown key"
    elif first["type"] != "missing" and not isinstance(first["input"], (dict, list)):
        problem += f", got {first['input']!r}"
    more = f" (and {len(error.errors()) - 1} more)" if len(error.errors()) > 1 else ""
    return InvalidModel(file, ".".join(key), problem + more, fix)


def _has(container: dict[str, Any] | list[Any], part: Any) -> bool:
    if isinstance(container, list):
        return isinstance(part, int) and part < len(container)
    return part in container


def fingerprint(raw: dict[str, Any]) -> str:
    """SHA-256 of the merged tables, whatever their order in the files."""
    return hashlib.sha256(json.dumps(raw, sort_keys=True).encode()).hexdigest()

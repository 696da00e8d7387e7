"""The rules of the house that a machine can check."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from clusterorch.models.reading import read_whole

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "clusterorch"
SOURCES = sorted(PACKAGE.rglob("*.py"))

FLOORS = {
    "errors": 0,
    "probability": 1,
    "causal": 2,
    "models": 3,
    "telemetry": 4,
    "simulation": 5,
    "inference": 5,
    "environment": 6,
    "diagnosis": 6,
    "policies": 6,
    "learning": 7,
    "evaluation": 8,
    "figures": 9,
    "reports": 9,
    "cli": 10,
    "bench": 10,
    "demo": 10,
    "__main__": 11,
}
# The command line is where the other two are started from; policies act in the environment, which knows none of them.
ALLOWED_SIDEWAYS = {("cli", "bench"), ("cli", "demo"), ("policies", "environment")}

NAMELESS = {"utils", "helpers", "common", "core", "base", "misc", "manager", "types"}
ROOT_ENTRIES = {
    *("clusterorch", "models", "notebooks", "papers", "tests", "data"),
    *("pyproject.toml", "Makefile", "constraints.txt", "README.md", "CHANGELOG.md", "LICENSE"),
}
LONGEST_FILE = 400


@cache
def syntax(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def place(node: ast.AST, path: Path) -> str:
    return f"{name_of(path)}:{node.lineno}"


def imports(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Every (statement, dotted module) a tree imports, in functions and through importlib too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            # `from clusterorch import models` imports clusterorch.models; a longer path than the
            # module's own does no harm, since only its head is looked at.
            yield from ((node, f"{node.module}.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            target = node.args[0]
            if called in {"import_module", "__import__"} and isinstance(target, ast.Constant):
                yield node, str(target.value)


def own_imports(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """(statement, top-level name under clusterorch) of imports from the package itself."""
    for node, module in imports(tree):
        head, _, rest = module.partition(".")
        if head == "clusterorch" and rest and rest != "__version__":
            yield node, rest.partition(".")[0]


def misdirected(importer: str, tree: ast.AST) -> list[tuple[ast.AST, str]]:
    """Imports of a module on `importer` (a top-level name) that do not point down."""
    return [
        (node, imported)
        for node, imported in own_imports(tree)
        if imported != importer
        and (importer, imported) not in ALLOWED_SIDEWAYS
        and not FLOORS.get(imported, 99) < FLOORS[importer]
    ]


def top_level(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def users_of(library: str) -> set[str]:
    return {
        name_of(path)
        for path in SOURCES
        if any(module.partition(".")[0] == library for _, module in imports(syntax(path)))
    }


def test_every_part_of_the_package_has_a_floor():
    parts = {top_level(path) for path in SOURCES} - {"__init__"}
    assert parts <= FLOORS.keys(), f"give these a floor: {sorted(parts - FLOORS.keys())}"


def test_imports_point_down():
    wrong = [
        f"{place(node, path)} imports {imported}"
        for path in SOURCES
        if top_level(path) in FLOORS
        for node, imported in misdirected(top_level(path), syntax(path))
    ]
    assert not wrong, wrong


@pytest.mark.parametrize(
    "source",
    [
        "from clusterorch.inference.filtering import update",
        "import clusterorch.policies",
        "from clusterorch import cli",
        "def late():\n    from clusterorch.inference import filtering",
        "import importlib\nimportlib.import_module('clusterorch.evaluation')",
    ],
)
def test_an_import_sideways_or_up_is_noticed(source):
    assert misdirected("simulation", ast.parse(source))


def test_an_import_down_or_within_is_allowed():
    source = "from clusterorch.models import load\nfrom clusterorch.simulation.clock import Clock\nimport numpy"
    assert not misdirected("simulation", ast.parse(source))


def test_the_package_itself_imports_none_of_its_floors():
    assert not list(own_imports(syntax(PACKAGE / "__init__.py")))


def test_no_import_is_relative():
    relative = [
        place(node, path)
        for path in SOURCES
        for node in ast.walk(syntax(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert not relative, relative


def test_every_module_has_a_name_that_says_something():
    nameless = [name_of(path) for path in SOURCES if NAMELESS & {path.stem, *path.relative_to(PACKAGE).parent.parts}]
    assert not nameless, nameless


def test_pgmpy_is_imported_in_one_file_only():
    assert len(users_of("pgmpy")) == 1, users_of("pgmpy")


# Gymnasium has an environment draw itself.
DRAWS_ITSELF = "clusterorch/environment/racks.py"


@pytest.mark.parametrize(("library", "floor"), [("matplotlib", "figures"), ("torch", "learning")])
def test_a_heavy_library_stays_on_its_floor(library, floor):
    strangers = {user for user in users_of(library) if not user.startswith(f"clusterorch/{floor}/")}
    strangers -= {DRAWS_ITSELF} if library == "matplotlib" else set()
    assert not strangers, strangers


def mode_names() -> set[str]:
    """Names of the declared failure modes, and of their variants as mode.variant."""
    file = ROOT / "models" / "reference.toml"
    if not file.exists():
        pytest.skip("no reference model yet")
    names = set()
    for mode in read_whole(file).get("mode", []):
        names.add(mode["name"])
        variants = mode.get("variant", [])
        for variant in variants if isinstance(variants, list) else ({"name": key} for key in variants):
            names.add(f"{mode['name']}.{variant['name']}")
    return names


def docstrings(tree: ast.Module) -> set[int]:
    """Identities of the constants that are docstrings."""
    owners = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, owners) and ast.get_docstring(node, clean=False) is not None
    }


def test_no_failure_mode_is_named_in_the_code():
    names = mode_names()
    assert names, "the reference model declares no mode"
    # A whole word: `thermal_throttling` within `sw_thermal_throttling_active` is another name.
    named = re.compile(r"(?<![\w.])(" + "|".join(map(re.escape, sorted(names, reverse=True))) + r")(?!\w)")
    found = []
    for path in SOURCES:
        spared = docstrings(syntax(path))  # examples may name a mode; behaviour may not hang on one
        found += [
            f"{place(node, path)} names {hit.group(1)}"
            for node in ast.walk(syntax(path))
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spared
            if (hit := named.search(node.value))
        ]
    assert not found, found


@cache
def project_files() -> tuple[Path, ...]:
    """Files git tracks, or would if they were added."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode != 0:
        pytest.skip("not a git checkout")
    files = (ROOT / name for name in listing.stdout.decode().split("\0") if name)
    return tuple(file for file in files if file.is_file())


def test_the_root_holds_only_what_belongs_there():
    entries = {file.relative_to(ROOT).parts[0] for file in project_files()}
    strangers = {entry for entry in entries - ROOT_ENTRIES if not entry.startswith(".")}
    assert not strangers, strangers


def test_no_file_names_a_place_on_one_machine():
    needles = [b"/wo" + b"rk/", b"/opt/wh" + b"eels"]
    naming = [name_of(file) for file in project_files() if any(n in file.read_bytes() for n in needles)]
    assert not naming, naming


def test_constraints_are_plain_pins():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    odd = [pin for pin in pins if not re.fullmatch(r"[a-z0-9][a-z0-9.-]*==[0-9][0-9a-z.]*", pin)]
    assert not odd, odd


def test_files_stay_short():
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in SOURCES}
    too_long = {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE}
    assert not too_long, too_long


Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def public_definitions(body: list[ast.stmt]) -> Iterator[Definition]:
    """Public classes, their public methods, and public functions."""
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_definitions(node.body)


def untyped(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Arguments without a type, and `return` if the result has none."""
    given = function.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs]
    arguments += [extra for extra in (given.vararg, given.kwarg) if extra]
    bare = [a.arg for a in arguments if a.annotation is None and a.arg not in {"self", "cls"}]
    return bare if function.returns else [*bare, "return"]


def test_everything_public_is_documented():
    silent = [
        f"{place(node, path)} {node.name}"
        for path in SOURCES
        for node in public_definitions(syntax(path).body)
        if not ast.get_docstring(node)
    ]
    silent += [name_of(path) for path in SOURCES if not ast.get_docstring(syntax(path))]
    assert not silent, silent


def test_every_public_function_is_typed():
    loose = [
        f"{place(node, path)} {node.name}: {', '.join(untyped(node))}"
        for path in SOURCES
        for node in public_definitions(syntax(path).body)
        if not isinstance(node, ast.ClassDef) and untyped(node)
    ]
    assert not loose, loose

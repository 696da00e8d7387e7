"""What may not stand in the kernels of sampler and filter: bits would depend on more than the inputs."""

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "clusterorch"
FLOORS = ("probability", "simulation", "inference")
FILES = sorted(file for floor in FLOORS for file in (PACKAGE / floor).rglob("*.py"))
FOREIGN = {"exp", "exp2", "expm1", "log", "log1p", "log2", "log10", "logaddexp", "power", "sin", "cos", "tanh"}
BLAS = {"dot", "matmul", "einsum", "vdot", "inner", "tensordot", "outer"}
REDUCTIONS = {"sum", "mean", "std", "var", "prod", "cumsum", "nansum", "average"}
DRAWS = {"causal_uniform", "telemetry_uniform", "uniform32", "uniform64", "philox4x32", "fill_uniform_block"}
COMPILERS = ("njit", "jit", "vectorize", "guvectorize")


def dotted(node):
    return f"{dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def is_kernel(function):
    names = [dotted(d.func if isinstance(d, ast.Call) else d) for d in function.decorator_list]
    return any(name.rpartition(".")[2] in COMPILERS for name in names)


def kernels(tree):
    return [f for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and is_kernel(f)]


def decorated(tree):
    """Kernels that fuse, reorder or share out their arithmetic."""
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call)):
        if dotted(call.func).rpartition(".")[2] in COMPILERS:
            for keyword in call.keywords:
                if keyword.arg in ("fastmath", "parallel") and getattr(keyword.value, "value", True) is not False:
                    yield call, keyword.arg


def banned(function):
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
            yield node, "@"
        elif isinstance(node, ast.Call):
            yield from banned_call(node)
        elif isinstance(node, ast.For | ast.comprehension) and is_set(node.iter):
            yield getattr(node, "iter", node), "iterates a set"
        elif isinstance(node, ast.While) and any(draws(part) for part in (*node.body, node.test)):
            yield node, "draws until it likes what it drew"
        elif isinstance(node, ast.Name) and node.id == "prange":
            yield node, "prange"


def banned_call(call):
    name = dotted(call.func)
    head, _, last = name.rpartition(".")
    if last in BLAS:
        yield call, last
    if head in ("np", "numpy", "math") and last in FOREIGN:
        yield call, name
    if isinstance(call.func, ast.Attribute) and last in REDUCTIONS:
        yield call, name
    if "np.random" in name or "random" in head.split("."):
        yield call, name


def is_set(node):
    called = dotted(node.func) if isinstance(node, ast.Call) else ""
    return isinstance(node, ast.Set | ast.SetComp) or called in ("set", "frozenset")


def draws(node):
    return any(isinstance(n, ast.Call) and dotted(n.func).rpartition(".")[2] in DRAWS for n in ast.walk(node))


def findings(source):
    tree = ast.parse(source)
    found = [f"{node.lineno}: {what}" for node, what in decorated(tree)]
    return found + [f"{node.lineno}: {what}" for function in kernels(tree) for node, what in banned(function)]


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(PACKAGE).as_posix())
def test_kernels_hold_nothing_whose_bits_may_vary(file):
    assert findings(file.read_text(encoding="utf-8")) == []


def test_there_are_kernels_on_every_floor():
    for floor in FLOORS:
        assert any(kernels(ast.parse(f.read_text(encoding="utf-8"))) for f in (PACKAGE / floor).rglob("*.py"))


def test_no_file_of_these_floors_uses_a_stateful_generator():
    for file in FILES:
        tree = ast.parse(file.read_text(encoding="utf-8"))
        named = {dotted(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
        imported = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert not any(n.startswith(("np.random", "numpy.random")) for n in named), file
        assert "random" not in imported, file


@pytest.mark.parametrize(
    "body",
    [
        "y = a @ b",
        "y = np.dot(a, b)",
        "y = np.einsum('i,i', a, b)",
        "y = a.sum(axis=0)",
        "y = np.sum(a)",
        "y = (a * b).sum()",
        "y = np.exp(a)",
        "y = math.log(a)",
        "y = np.random.random()",
        "for i in {1, 2}: pass",
        "for i in set(a): pass",
        "while causal_uniform(0, 0, 0, 0, 0) > 0.5: pass",
        "while True:\n        u = telemetry_uniform(0, 0, 0, 0, 0)",
        "for i in prange(3): pass",
    ],
)
def test_each_of_them_would_be_found(body):
    assert findings(f"@njit(cache=True)\ndef f(a, b):\n    {body}\n")


@pytest.mark.parametrize("option", ["fastmath=True", "parallel=True", "fastmath={'contract'}"])
def test_options_would_be_found(option):
    assert findings(f"@njit({option})\ndef f(a):\n    return a\n")
    assert not findings("@njit(cache=True)\ndef f(a):\n    return a\n")

"""Outside data (records, objects, names, the broker's files, options) never becomes code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
PROGRAMS = (
    *("ts_common", "ts_uploader", "ts_spark", "ts_reader", "ts_tables", "ts_endpoint", "tsctl"),
    "pyspark_kafka_segments.py",
)
# Each turns its input into code or objects.
MODULES = {"pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "code", "codeop", "runpy", "pdb"}
BUILTINS = {"eval", "exec", "compile", "__import__"}
SHELLS = {"subprocess", "pty", "commands"}
OF_OS = ("system", "popen", "exec", "spawn", "posix_spawn")
# The one parser of JSON from programs; and one for operators' input: Spark's options.
# Values of records are parsed by orjson first; then some once more, with all digits of their numbers.
# The SDK's descriptions are files of its package, and of the user's directory for more of them.
# `tsctl sql` parses what DuckDB serialised. The verifier of a folder is a program of its own: `tsctl` only copies it.
PARSES_JSON = {
    "tsctl/seal/folder_verifier.py",
    "ts_common/json_objects.py",
    "ts_common/store/s3/descriptions.py",
    "ts_reader/options/value_types.py",
    "ts_reader/schemas/json_values.py",
    "tsctl/sql/row_filter.py",
    "tsctl/sql/session.py",
}
# Classes that an operator names in a file or an option of their own: see docs/security.md.
LOADS_CLASSES = {"ts_common/config/plugins.py"}
# The module of the command that runs, or of a name of the interface, by a table of its own.
LOADS_BY_TABLE = {"ts_reader/__init__.py", "tsctl/cli.py"}
# protoc in a process of its own, without a shell; no text of a schema is an argument. And Python itself, as a worker.
RUNS_PROGRAMS = {
    "ts_reader/schemas/protobuf/compiler.py",
    "ts_reader/execution/process_pool.py",
    "ts_tables/marks.py",  # the command of the operator, without a shell
    "tsctl/drill/broker.py",
    "tsctl/seal/folder_verifier.py",  # openssl, on the host of an auditor
}
# Between a process and the workers that it started, on a socket pair without a name; and a Spark driver and executors.
PICKLES = {"ts_reader/execution/worker_messages.py", "ts_tables/engines/spark/engine.py"}
# The function around a kernel, from numbers and the types of its annotations.
MAKES_FUNCTIONS = {"ts_reader/decode/compilation.py"}


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield the syntax tree of every installed module."""
    for name in PROGRAMS:
        folder = CHECKOUT / name
        for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
            yield str(path.relative_to(CHECKOUT)), ast.parse(path.read_text())


def problems(tree: ast.AST) -> Iterator[str]:
    """Yield the names in a module that could turn data into code."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (each.name for each in names if each.name.partition(".")[0] in MODULES | SHELLS)
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] in MODULES | SHELLS:
                yield module
            case ast.ImportFrom(module="os", names=names):
                yield from (f"os.{each.name}" for each in names if each.name.startswith(OF_OS))
            case ast.ImportFrom(module="importlib", names=names):
                yield from (each.name for each in names if each.name == "import_module")
            case ast.Call(func=ast.Name(id=name)) if name in BUILTINS:
                yield name
            case ast.Attribute(value=ast.Name(id="os"), attr=name) if name.startswith(OF_OS):
                yield f"os.{name}"
            case ast.Attribute(value=ast.Name(id="importlib"), attr="import_module"):
                yield "import_module"
            case ast.keyword(arg="allow_pickle" | "shell", value=ast.Constant(value=True)):
                yield f"{node.arg}=True"


def parses_json(tree: ast.AST) -> bool:
    """Return whether a module parses JSON with the standard library."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in {"load", "loads", "JSONDecoder"}
        and isinstance(node.value, ast.Name)
        and node.value.id == "json"
        for node in ast.walk(tree)
    )


@pytest.fixture(scope="module")
def found() -> dict[str, tuple[list[str], bool]]:
    """Return the problems of every installed module, and whether it parses JSON. It keeps no tree."""
    return {path: (sorted(problems(tree)), parses_json(tree)) for path, tree in sources()}


def test_nothing_makes_code_of_data(found: dict[str, tuple[list[str], bool]]) -> None:
    """No eval, YAML or shell, pickles between own processes only; one place loads classes by an operator's names."""
    assert {path: told for path, (told, _) in found.items() if told} == {
        **{path: ["import_module"] for path in LOADS_CLASSES | LOADS_BY_TABLE},
        **{path: ["subprocess"] for path in RUNS_PROGRAMS},
        **{path: ["pickle"] for path in PICKLES},
        **{path: ["exec"] for path in MAKES_FUNCTIONS},
    }


def test_one_module_parses_the_json_of_stores(found: dict[str, tuple[list[str], bool]]) -> None:
    """So each object and each answer has the same bounds, and the same error."""
    assert {path for path, (_, parses) in found.items() if parses} == PARSES_JSON


def test_what_is_looked_for_is_found() -> None:
    """In a module that has all of it."""
    text = (
        "import pickle, subprocess as s, yaml.loader\nfrom marshal import loads\nfrom os import execv\nimport os\n"
        "eval('1')\nos.system('x')\nnp.load(f, allow_pickle=True)\nrun('x', shell=True)\nre.compile('a')\n"
        "from importlib import import_module\nimportlib.import_module(x)\ndf.eval('a')\n"
    )
    assert sorted(problems(ast.parse(text))) == sorted(
        [
            *("pickle", "subprocess", "yaml.loader", "marshal", "os.execv", "eval", "os.system", "allow_pickle=True"),
            *("shell=True", "import_module", "import_module"),
        ]
    )

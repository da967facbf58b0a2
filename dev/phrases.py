"""Report words of `docs/phrases.toml` in pages, docstrings, comments, help, errors and log events.

`make lint` runs it; `python -m dev.phrases FILE ...` checks some files.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
LIST = CHECKOUT / "docs/phrases.toml"
_ROOMS = (
    ".ci",
    ".github",
    "conf",
    "deploy",
    "dev",
    "docs",
    "tests",
    "ts_common",
    "ts_endpoint",
    "ts_consumer",
    "ts_reader",
    "ts_spark",
    "ts_tables",
    "ts_uploader",
    "tsctl",
)
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\]\([^)\s]*\)|<!--.*?-->", re.DOTALL)
_SUFFIXES = frozenset(
    {".example", ".j2", ".java", ".json", ".md", ".properties", ".py", ".service", ".svg", ".toml", ".yaml", ".yml"}
)
_TEST = "test_"
_LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})


@dataclass(frozen=True)
class Phrase:
    """One entry of the list; `pages`: it is for pages only."""

    word: re.Pattern[str]
    use: str
    allowed: tuple[re.Pattern[str], ...]
    pages: bool

    def uses(self, text: str) -> Iterator[re.Match[str]]:
        """Yield each use in `text` that no allowed context contains."""
        allowed = [match.span() for pattern in self.allowed for match in pattern.finditer(text)]
        for match in self.word.finditer(text):
            if not any(start <= match.start() and match.end() <= end for start, end in allowed):
                yield match


def phrases() -> list[Phrase]:
    """Read the list.

    Raises:
        re.error: an entry is not a regular expression.
    """
    entries = tomllib.loads(LIST.read_text())["phrase"]
    return [
        Phrase(
            re.compile(rf"(?<![\w/.-])(?:{entry['word']})(?![\w/-])", re.IGNORECASE),
            entry["use"],
            tuple(re.compile(pattern, re.IGNORECASE) for pattern in entry.get("allowed", ())),
            entry.get("pages", False),
        )
        for entry in entries
    ]


def prose(file: Path) -> Iterator[tuple[int, str]]:
    """Yield the texts of a file that people read, each with the number of its first line.

    Code in Markdown does not count. In Python these count: docstrings, comments, names of log events, and strings of
    several words. In tests docstrings, comments and the tests' names count; their strings are data.
    """
    source = file.read_text()
    if file.suffix == ".py":
        yield from _prose_of_python(source, strings="tests" not in file.parts)
    else:
        yield 1, without_code(source)


def without_code(text: str) -> str:
    """Replace code and link targets by blanks, so that lines keep their numbers."""
    return _CODE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def _prose_of_python(source: str, *, strings: bool) -> Iterator[tuple[int, str]]:
    tree = ast.parse(source)
    documented = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            documented.add(id(node.body[0].value))  # type: ignore[attr-defined]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith(_TEST):
            yield node.lineno, node.name.removeprefix(_TEST).replace("_", " ")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in documented or (strings and " " in node.value.strip()):
                yield node.lineno, without_code(node.value)
        elif (
            strings
            and isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _LOG_METHODS
        ):
            event = node.args[0] if node.args else None
            if isinstance(event, ast.Constant) and isinstance(event.value, str) and " " not in event.value:
                yield event.lineno, event.value.replace("_", " ")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], without_code(token.string)


def read_files(names: list[str]) -> Iterator[Path]:
    """Yield the files to check, by default all of the checkout that people read."""
    default = (
        *CHECKOUT.glob("*.md"),
        CHECKOUT / "Makefile",
        CHECKOUT / "pyproject.toml",
        *(CHECKOUT / room for room in _ROOMS),
    )
    roots = [Path(name).resolve() for name in names] or list(default)
    for root in roots:
        for file in [root] if root.is_file() else sorted(root.rglob("*")):
            script = not file.suffix and (file.name == "Makefile" or not {".ci", "deploy"}.isdisjoint(file.parts))
            if file != LIST and file.is_file() and (script or file.suffix in _SUFFIXES):
                yield file


def main() -> int:
    """Print each use with its file and line; return 1 if there is one."""
    parser = argparse.ArgumentParser(prog="python -m dev.phrases", description=__doc__)
    parser.add_argument("--count", action="store_true", help="print the number of uses in each file only")
    parser.add_argument("files", nargs="*", help="files or directories; default: the whole checkout")
    options = parser.parse_args()
    listed, found = phrases(), 0
    for file in read_files(options.files):
        lines = [
            (line + text.count("\n", 0, match.start()), match[0], phrase.use)
            for line, text in prose(file)
            for phrase in listed
            if file.suffix == ".md" or not phrase.pages
            for match in phrase.uses(text)
        ]
        name = file.relative_to(CHECKOUT) if file.is_relative_to(CHECKOUT) else file
        if options.count and lines:
            print(f"{len(lines):5d} {name}")
        elif lines:
            print(*(f'{name}:{line}: "{word}": use: {use}' for line, word, use in sorted(lines)), sep="\n")
        found += len(lines)
    if found:
        print(f"{found} uses of phrases that docs/phrases.toml lists", file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())

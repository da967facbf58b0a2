"""YAML files that users write: reads them, and validates each as a whole.

The agent never imports this module, because its hosts have no ruamel.yaml.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Final, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer, ComposerError
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode, ScalarNode, SequenceNode

from ts_common.errors import ConfigurationError
from ts_common.suggestions import nearest

MOST_BYTES: Final = 4 << 20  # of a file
_MOST_TEXT: Final = 500  # characters of YAML's own message
_MOST_LEVELS: Final = 64  # values inside of one another
_MOST_KEY: Final = 100  # characters of a name or value in a message
# What ruamel.yaml raises in addition for hostile text: tags, escapes and keys that it does not check.
_FOREIGN: Final = (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)
_INSIDE: Final = re.compile(r"(dict|literal|constrained)?\[.*\]")  # pydantic's names of parts of a type
_A_LIST: Final = "a list is expected, as {name}: [...]"
_MESSAGES: Final = {
    "missing": "it is missing",
    "list_type": _A_LIST,
    "tuple_type": _A_LIST,
    "model_type": "names with values are expected",
    "dict_type": "names with values are expected",
    "too_short": "it is empty; at least one entry is expected",
}

Model = TypeVar("Model", bound=BaseModel)


def read_yaml(path: Path, *, most_bytes: int = MOST_BYTES, missing: str = "there is no such file") -> Any:
    """Return the values of a YAML file.

    Args:
        most_bytes: a larger file is refused.
        missing: the message for a file that does not exist.

    Raises:
        ConfigurationError: it is missing, or is no YAML.
    """
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError:
        raise ConfigurationError(str(path), [missing]) from None
    except OSError as error:
        raise ConfigurationError(str(path), [f"cannot read the file: {error.strerror}"]) from error
    if len(data) > most_bytes:
        raise ConfigurationError(str(path), [f"it has more than {most_bytes} bytes"])
    try:
        return parse_yaml(data.decode())
    except ValueError as error:
        raise ConfigurationError(str(path), [f"it is no YAML: {error}"]) from error


def parse_yaml(text: str) -> Any:
    """Return the values of a text.

    Raises:
        ValueError: it is no YAML.
    """
    try:
        return _parser().load(text)
    except DuplicateKeyError as error:  # its own message advises to allow them
        raise ValueError(_given_twice(text, error)) from error
    except (YAMLError, *_FOREIGN) as error:
        raise ValueError(" ".join(str(error).split())[:_MOST_TEXT]) from error


class _Composer(Composer):
    """The library's, which recurses into each level of a text."""

    _level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Return a node and all below it.

        Raises:
            ComposerError: the text is nested too deep.
        """
        if self._level == _MOST_LEVELS:
            raise ComposerError(f"it is nested more than {_MOST_LEVELS} levels deep")
        self._level += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._level -= 1


def _parser() -> YAML:
    found = YAML(typ="safe", pure=True)
    found.Composer = _Composer
    return found


def _given_twice(text: str, error: DuplicateKeyError) -> str:
    """Return a message that names a key and both its lines."""
    second = error.problem_mark.line
    nodes, seen = [_parser().compose(text)], set[int]()
    while nodes:
        node = nodes.pop()
        if id(node) in seen:  # an alias
            continue
        seen.add(id(node))
        if isinstance(node, SequenceNode):
            nodes += node.value
        elif isinstance(node, MappingNode):
            nodes += [value for _, value in node.value]
            lines: dict[str, int] = {}
            for name, line in [
                (key.value, key.start_mark.line) for key, _ in node.value if isinstance(key, ScalarNode)
            ]:
                if name in lines and line == second:
                    return f"{name[:_MOST_KEY]} is given twice (lines {lines[name] + 1} and {line + 1})"
                lines.setdefault(name, line)
    return f"a key is given twice, in line {second + 1}"  # two texts of one value, as in 1 and 0x1


def validate(model: type[Model], content: Any, source: str, further: Sequence[str] = ()) -> Model:
    """Return the values of a file as a model.

    Args:
        model: of the whole file.
        source: the file's name for messages.
        further: problems that the model cannot find.

    Raises:
        ConfigurationError: with every problem, each with its place in the file.
    """
    try:
        found = model.model_validate(content)
    except ValidationError as error:
        raise ConfigurationError(source, sorted({*_problems(error, model), *further})) from error
    if further:
        raise ConfigurationError(source, sorted({*further}))
    return found


def _problems(error: ValidationError, model: type[BaseModel]) -> Iterator[str]:
    """Yield a message for each mistake."""
    problems = error.errors(include_url=False)
    places = [problem["loc"] for problem in problems]
    for problem in problems:
        own = problem["loc"]
        if problem["type"] == "too_short" and any(len(each) > len(own) and each[: len(own)] == own for each in places):
            continue  # it has entries, and each of them is wrong
        place = [str(each) for each in problem["loc"] if not _INSIDE.fullmatch(str(each))]
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] in _MESSAGES:
            message = _MESSAGES[problem["type"]].replace("{name}", place[-1] if place else "")
        elif problem["type"] in {"bool_parsing", "bool_type"}:
            message = f"{repr(problem['input'])[:_MOST_KEY]} is neither true nor false"
        elif problem["type"] == "extra_forbidden":
            message = f"this name is unknown{nearest(place[-1], _names_at(model, place[:-1]))}"
        yield f"{'.'.join(place) or 'the file'}: {message[0].lower()}{message[1:]}"


def _names_at(model: type[BaseModel], place: Sequence[str]) -> set[str]:
    """Return the names that a place of the file may have."""
    types: list[Any] = [model]
    for step in place:
        types = [inner for outer in types for each in _parts(outer) for inner in _inner(each, step)]
    models = [each for outer in types for each in _parts(outer) if _is_model(each)]
    return {field.alias or name for each in models for name, field in each.model_fields.items()}


def _parts(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation accepts, each without its own annotations."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _parts(get_args(annotation)[0])
    elif origin in {Union, UnionType}:
        for each in get_args(annotation):
            yield from _parts(each)
    else:
        yield annotation


def _inner(annotation: Any, step: str) -> Iterator[Any]:
    """Yield the type of what a name or a number leads to."""
    arguments = get_args(annotation)
    if _is_model(annotation):
        fields = {field.alias or name: field.annotation for name, field in annotation.model_fields.items()}
        yield from [fields[step]] if step in fields else []
    elif isinstance(get_origin(annotation), type) and issubclass(get_origin(annotation), Mapping):
        yield arguments[1]
    elif arguments:
        yield arguments[0]


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)

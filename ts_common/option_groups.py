"""Options that several commands have. A group is a dataclass of them, and a command has one parameter for it."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from functools import wraps
from typing import Any, get_type_hints

import typer

from ts_common.installed import version


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command that has the options of each group in place of the group's parameter.

    Args:
        command: its parameters are options of typer, or groups: dataclasses whose fields are such options.
    """
    hints = get_type_hints(command, include_extras=True)
    signature = inspect.signature(command)
    groups: dict[str, Any] = {name: hints[name] for name in signature.parameters if is_dataclass(hints[name])}
    options: list[inspect.Parameter] = []
    for name, parameter in signature.parameters.items():
        if name not in groups:
            options.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        types = get_type_hints(groups[name], include_extras=True)
        options += [
            inspect.Parameter(
                each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=types[each.name]
            )
            for each in fields(groups[name])
        ]

    @wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        command(**given)

    run.__signature__ = signature.replace(parameters=options)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options} | {"return": None}
    return run


def version_option(program: str) -> Any:
    """Return the option that prints the version of the installed release, and ends the program."""

    def show(wanted: bool) -> None:
        if wanted:
            print(program, version())  # noqa: T201  (the command's own voice)
            raise typer.Exit

    return typer.Option("--version", callback=show, is_eager=True, help="Show the version and exit.")

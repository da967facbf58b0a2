"""`ts-endpoint user`: the file of users that `--users` names."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from ts_common.errors import ConfigurationError
from ts_common.printable import printable
from ts_endpoint.security.user_entries import add_user, remove_user
from ts_endpoint.security.users import User, read_users

users = typer.Typer(no_args_is_help=True, help="Add, list and remove users in the file of --users.")

_File = Annotated[Path, typer.Argument(help="The file of users, as --users names it.", metavar="FILE")]
_Name = Annotated[
    str,
    typer.Argument(help="Name of the user; with --tls-client-ca the certificate's subject.", metavar="NAME"),
]


@users.command()
def add(
    file: _File,
    name: _Name,
    topic: Annotated[
        list[str] | None, typer.Option(help="A topic that the user may read, or 'orders*', or '*'; repeat it.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="A consumer group that the user may use, as --topic; repeat it.")
    ] = None,
    bytes_per_second: Annotated[int | None, typer.Option(help="Quota of the user over all connections.")] = None,
    password_file: Annotated[
        Path | None, typer.Option(help="File with the password in its first line, - for standard input.")
    ] = None,
    password: Annotated[
        bool | None,
        typer.Option("--password/--no-password", help="Read a password from the terminal; default: for a new user."),
    ] = None,
) -> None:
    """Add a user, or change what is given of one. The file gets SCRAM keys and never the password.

    A user of mutual TLS needs no password. Running endpoints read the file again within seconds.
    """
    is_new = not file.exists() or name not in read_users(file)
    try:
        add_user(
            file,
            name,
            _password(password_file, is_wanted=is_new if password is None else password),
            topics=topic or (),
            groups=group or (),
            bytes_per_second=bytes_per_second,
        )
    except OSError as error:
        raise ConfigurationError(str(file), [f"it cannot be written: {error.strerror}"]) from error


@users.command()
def ls(
    file: _File, as_json: Annotated[bool, typer.Option("--json", help="One JSON object for each user.")] = False
) -> None:
    """List users with their mechanisms, topics, groups and quota."""
    for name, user in sorted(read_users(file).items()):
        facts = _facts(name, user)
        print(json.dumps(facts) if as_json else _line(facts))  # noqa: T201  (the command's own voice)


@users.command()
def rm(file: _File, name: _Name) -> None:
    """Remove a user. Running endpoints then refuse the user's requests, also on open connections."""
    try:
        remove_user(file, name)
    except OSError as error:
        raise ConfigurationError(str(file), [f"it cannot be written: {error.strerror}"]) from error


def _facts(name: str, user: User) -> dict[str, object]:
    return {
        "user": name,
        "mechanisms": [str(mechanism.value) for mechanism in user.keys],
        "topics": user.topics,
        "groups": user.groups,
        "bytes_per_second": user.bytes_per_second,
    }


def _line(facts: dict[str, object]) -> str:
    shown = [str(facts.pop("user"))]
    for name, value in facts.items():
        if value:
            shown.append(f"{name}={','.join(value) if isinstance(value, list) else value}")
    return printable("  ".join(shown))


def _password(file: Path | None, *, is_wanted: bool) -> str | None:
    """Return the password of a file or of the terminal; None if no password is wanted."""
    if file is not None:
        try:
            text = sys.stdin.read() if str(file) == "-" else file.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError("--password-file", [f"cannot read {file}: {error}"]) from error
        return text.partition("\n")[0].rstrip("\r")
    if not is_wanted:
        return None
    if not sys.stdin.isatty():
        problem = "standard input is no terminal to read it from"
        raise ConfigurationError("the password", [f"{problem}: give --password-file, or --no-password for mutual TLS"])
    return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))

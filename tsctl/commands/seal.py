"""`tsctl seal`: signs what the archive has, so that a later change is found."""

from pathlib import Path
from typing import Annotated, Final

import typer

from ts_common.errors import ConfigurationError, QueryError
from ts_common.option_groups import with_groups
from ts_common.store.contract import ObjectStore
from ts_reader.options.archive_name import SOURCE
from tsctl.archive_options import ArchiveOptions, JsonOption, OpenArchive, PublicKeysOption, open_archive
from tsctl.exit_codes import ExitCode
from tsctl.output import Cell, Output, iso
from tsctl.seal.chain import CheckedSeal, read_chain, token_numbers
from tsctl.seal.sealing import Sealed, describe, seal_store
from tsctl.seal.signing import read_accepted, read_signer
from tsctl.seal.tokens import put_token, read_response

_COLUMNS: Final = ("SEAL", "TIME", "LEAVES", "SHA-256 OF ITS HEAD", "TOKEN", "FOUND")

seal = typer.Typer(no_args_is_help=True, help="Seals: signed hashes of what the archive has.")


@seal.command("run")
@with_groups
def run(
    key: Annotated[Path, typer.Option("--key", help="PEM file of the Ed25519 private key that signs.", metavar="FILE")],
    public_keys: PublicKeysOption = None,
    despite_damage: Annotated[
        bool,
        typer.Option(
            "--despite-damage", help="Continue a chain with a lost or damaged seal: what it had is sealed again."
        ),
    ] = False,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Read each committed segment that no seal has, and write the next seal. Exit code 1: something was left out."""
    output, signer = Output(as_json), read_signer(key)
    accepted = {**read_accepted(public_keys or ()), signer.public.name: signer.public}
    results: list[tuple[ObjectStore, Sealed]] = []
    with open_archive(given.name(), output.warn) as archive:
        for store in archive.stores:
            store.check()
            with output.progress("bytes", 0, in_bytes=True) as advance:
                done = seal_store(store, archive.keys, signer, accepted, advance, despite_damage=despite_damage)
            results.append((store, done))
            for problem in done.problems:
                output.warn(f"left out: {problem}")
            output.text(f"{store.location}: {describe(done)}")
            for head in done.heads:
                output.text(f"seal {head.seal}: {head.leaves:,} leaves, head SHA-256 {head.sha256}")
    if as_json:
        output.document({"cluster": archive.keys.cluster, "stores": [_fields(*each) for each in results]})
    if any(done.problems for _, done in results):
        raise typer.Exit(ExitCode.FOUND)


def _fields(store: ObjectStore, done: Sealed) -> dict[str, object]:
    return {
        "location": store.location,
        "objects": done.objects,
        "bytes": done.bytes,
        "explained": done.explained,
        "left_out": done.problems,
        "seals": [
            {"seal": each.seal, "leaves": each.leaves, "sha256": each.sha256, "time": iso(each.time)}
            for each in done.heads
        ],
    }


@seal.command("ls")
@with_groups
def ls(public_keys: PublicKeysOption = None, *, given: ArchiveOptions, as_json: JsonOption = False) -> None:
    """List the seals and check their chain. Exit code 1: one of them is missing, damaged or not signed by a key."""
    output, accepted = Output(as_json), read_accepted(public_keys or ())
    rows: list[tuple[CheckedSeal, bool]] = []
    with open_archive(given.name(), output.warn) as archive:
        for store in archive.stores:
            tokens = token_numbers(store, archive.keys)
            rows += [(each, each.number in tokens) for each in read_chain(store, archive.keys, accepted)]
    if as_json:
        output.document({"cluster": archive.keys.cluster, "seals": [_row_fields(*each) for each in rows]})
    elif rows:
        output.table(_COLUMNS, [tuple(_row_fields(*each).values()) for each in rows])
    else:
        output.text("no seals")
    if any(each.problems for each, _ in rows):
        raise typer.Exit(ExitCode.FOUND)


def _row_fields(found: CheckedSeal, has_token: bool) -> dict[str, Cell]:
    head = found.head
    return {
        "seal": found.number,
        "time": None if head is None else iso(head.time),
        "leaves": None if head is None else head.leaves,
        "sha256": None if head is None else head.sha256,
        "token": has_token,
        "found": "; ".join(found.problems) or "right",
    }


@seal.command("timestamp")
@with_groups
def timestamp(
    number: Annotated[int, typer.Argument(help="Number of the seal.", min=1)],
    response: Annotated[
        Path,
        typer.Option(
            "--response", help="The authority's response of RFC 3161, as openssl ts makes it.", metavar="FILE"
        ),
    ],
    public_keys: PublicKeysOption = None,
    *,
    given: ArchiveOptions,
    as_json: JsonOption = False,
) -> None:
    """Store the timestamp token of a seal: an authority signed the hash of its head."""
    output, accepted = Output(as_json), read_accepted(public_keys or ())
    with open_archive(given.name(), output.warn) as archive:
        store = _only_store(archive)
        found = next((each for each in read_chain(store, archive.keys, accepted) if each.number == number), None)
        if found is None or found.head is None:
            raise QueryError(f"{store.location} has no seal {number} that can be read; see tsctl seal ls")
        put_token(store, archive.keys, number, read_response(response, found.head))
    if as_json:
        output.document({"seal": number, "token": archive.keys.seal_token(number)})
    else:
        output.text(f"seal {number}: token stored as {archive.keys.seal_token(number)}")


def _only_store(archive: OpenArchive) -> ObjectStore:
    if len(archive.stores) != 1:
        raise ConfigurationError(SOURCE, ["the file names several locations, each with seals of its own: give --url"])
    return archive.stores[0]

"""Verify this folder: python3 -I -S verify.py --public-key sealer.pub [--known 7:SHA256] [--tsa-ca tsa.pem].

Python's standard library and the command openssl are all that it needs. Get the public key, and the hash of a head,
from the owner of the archive, not from this folder. What is compared:

heads/<n>.json, .sig  each head is signed by a given key, and has the hash of the head before: the chain, from 1 on
heads/<n>.tsr         a timestamp token of that head (RFC 3161), with --tsa-ca
proof.json            each leaf leads by its path to the root of a head (RFC 6962)
segments/             each file has the size and the SHA-256 of its leaf; together they cover the offsets of proof.json
"""

import argparse
import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

PROBLEMS: list[str] = []


def problem(text: str) -> None:
    """Print and count what is wrong."""
    PROBLEMS.append(text)
    print(f"WRONG: {text}")  # noqa: T201


def sha256(data: bytes) -> bytes:
    """Return a digest."""
    return hashlib.sha256(data).digest()


def openssl(*arguments: object) -> "subprocess.CompletedProcess[bytes]":
    """Run the command openssl."""
    return subprocess.run(["openssl", *map(str, arguments)], capture_output=True, check=False)  # noqa: S603, S607


def root_by_path(leaf: bytes, index: int, size: int, path: list[str]) -> str | None:
    """Return the root of a tree of `size` leaves; None if the path has another length."""
    node, rest = sha256(b"\0" + leaf), [bytes.fromhex(each) for each in path]
    while size > 1:
        if index % 2 or index + 1 < size:
            if not rest:
                return None
            other = rest.pop(0)
            node = sha256(b"\1" + other + node) if index % 2 else sha256(b"\1" + node + other)
        index, size = index // 2, (size + 1) // 2
    return None if rest else node.hex()


def check_chain(folder: Path, keys: list[str], known: dict[int, str], tsa_ca: str | None) -> dict[int, Any]:
    """Return the heads by number, those with a right signature only."""
    names = {sha256(openssl("pkey", "-pubin", "-in", key, "-outform", "DER").stdout).hex(): key for key in keys}
    heads: dict[int, Any] = {}
    before: str | None = None
    numbers = [int(each.stem) for each in (folder / "heads").glob("*.json") if each.stem.isdecimal()]
    for number in range(1, max([*numbers, *known], default=0) + 1):
        file, where = folder / "heads" / f"{number}.json", f"seal {number}"
        if not file.exists():
            problem(f"{where}: it is missing")
            before = None
            continue
        text = file.read_bytes()
        head, hashed = json.loads(text), sha256(text).hex()
        key, signature, token = names.get(head["key"]), file.with_suffix(".sig"), file.with_suffix(".tsr")
        line = ("pkeyutl", "-verify", "-pubin", "-inkey", key, "-rawin", "-in", file, "-sigfile", signature)
        if key is None:
            problem(f"{where}: signed by the key {head['key']}, which no --public-key has")
        elif openssl(*line).returncode:
            problem(f"{where}: the signature is wrong: openssl {' '.join(map(str, line))}")
        elif head["seal"] != number:
            problem(f"{where}: its head is of seal {head['seal']}")
        else:
            heads[number] = head
        if (number == 1) != (head["previous"] is None) or (before is not None and head["previous"] != before):
            problem(f"{where}: it does not continue the seal before: the chain was cut")
        if known.get(number, hashed) != hashed:
            problem(f"{where}: its head has the hash {hashed}; known is {known[number]}")
        stamped = ("ts", "-verify", "-data", file, "-in", token, "-CAfile", tsa_ca)
        if token.exists() and tsa_ca is None:
            print(f"not checked: the timestamp token of {where}; give --tsa-ca")  # noqa: T201
        elif token.exists() and openssl(*stamped).returncode:
            problem(f"{where}: the timestamp token is wrong: openssl {' '.join(map(str, stamped))}")
        before = hashed
    return heads


def check_leaves(folder: Path, proof: Any, heads: dict[int, Any]) -> int:
    """Check each leaf and its file, and what the segments cover; return the number of files."""
    covered: dict[str, list[tuple[int, int, int]]] = {}
    files = 0
    for entry in proof["leaves"]:
        leaf, head, name = json.loads(entry["leaf"]), heads.get(entry["seal"]), entry["file"]
        where = f"{leaf['key']} of seal {entry['seal']}"
        if head is None:
            problem(f"{where}: no right head of that seal")
        elif root_by_path(entry["leaf"].encode(), entry["index"], head["leaves"], entry["path"]) != head["root"]:
            problem(f"{where}: its path does not lead to the root of the seal")
        elif name is None:
            print(f"{leaf['kind']}: {where}, by {leaf.get('by', 'a later leaf')}")  # noqa: T201
        elif not re.fullmatch(r"segments/[0-9]+\.(log|json)", name) or not (folder / name).is_file():
            problem(f"{where}: the file {name!r} is missing")
        else:
            with (folder / name).open("rb") as opened:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
            if ((folder / name).stat().st_size, digest) != (leaf["size"], leaf["sha256"]):
                problem(f"{where}: the file {name} has other bytes: SHA-256 {digest}; sealed was {leaf['sha256']}")
                continue
            files += 1
            directory = leaf["key"].split("/")[-3 if leaf["kind"] == "gap" else -2]
            covered.setdefault(directory, []).append((leaf["base"], leaf.get("end") or leaf["base"], entry["seal"]))
    for part in proof["partitions"]:
        at, before = part["from"], (0, 0)
        for base, end, seal in sorted(covered.get(part["directory"], [])):
            if base < before[0] and seal != before[1]:
                print(f"added later: seals {before[1]} and {seal} have offset {base} of {part['directory']}")  # noqa: T201
            at, before = max(at, end) if base <= at else at, max(before, (end, seal))
        if at < part["to"]:
            problem(f"{part['directory']}: no right file has the offsets from {at} to {part['to']}")
    return files


def main() -> None:
    """Check all, and end with 0 if nothing is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public-key", action="append", required=True, help="PEM file of a sealer's public key")
    parser.add_argument("--known", action="append", default=[], help="number and SHA-256 of a head: 7:0123...")
    parser.add_argument("--tsa-ca", help="PEM file of the authority of timestamps")
    given, folder = parser.parse_args(), Path(__file__).resolve().parent
    try:
        known = {int(number): digest for number, digest in (each.split(":") for each in given.known)}
        proof = json.loads((folder / "proof.json").read_bytes())
        heads = check_chain(folder, given.public_key, known, given.tsa_ca)
        files = check_leaves(folder, proof, heads)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        problem(f"the folder is damaged: {type(error).__name__}: {error}")
    if not PROBLEMS:
        print(f"RIGHT: files: {files}; seals: {len(heads)}; the files are unchanged since they were sealed")  # noqa: T201
    sys.exit(1 if PROBLEMS else 0)


if __name__ == "__main__":
    main()

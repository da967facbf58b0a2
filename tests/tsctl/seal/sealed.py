"""Archives with seals, and the keys of sealers."""

import io
import json
import runpy
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.made_archive import MadeArchive
from ts_common.store.contract import ObjectStore
from tsctl.seal.chain import read_chain
from tsctl.seal.leaves import Head, Leaf, Seal
from tsctl.seal.sealing import Sealed, seal_store
from tsctl.seal.signing import Signer, read_signer


class Keys:
    """A sealer's key, as files.

    Attributes:
        private: path of the private key.
        public: path of the public key.
        signer: the private key.
    """

    def __init__(self, directory: Path, name: str = "sealer") -> None:
        key = Ed25519PrivateKey.generate()
        self.private, self.public = directory / f"{name}.pem", directory / f"{name}.pub"
        self.private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        self.public.write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
        self.signer: Signer = read_signer(self.private)

    @property
    def accepted(self) -> dict[str, Any]:
        return {self.signer.public.name: self.signer.public}


def seal(archive: MadeArchive, keys: Keys, *former: Keys, store: ObjectStore | None = None, **named: Any) -> Sealed:
    """Run `tsctl seal run`, with the keys of former sealers."""
    accepted = {name: key for each in (keys, *former) for name, key in each.accepted.items()}
    return seal_store(store or archive.store, archive.keys, keys.signer, accepted, **named)


def leaves(archive: MadeArchive, *keys: Keys) -> list[Leaf]:
    """Return the leaves of all seals that count."""
    accepted = {name: key for each in keys for name, key in each.accepted.items()}
    return [leaf for each in read_chain(archive.store, archive.keys, accepted) for leaf in each.leaves]


def read_seal(archive: MadeArchive, number: int) -> dict[str, Any]:
    """Return the JSON of a seal."""
    found: dict[str, Any] = json.loads(archive.store.get(archive.keys.seal(number))[0])
    return found


def write_seal(archive: MadeArchive, number: int, fields: dict[str, Any]) -> None:
    archive.store.put(archive.keys.seal(number), json.dumps(fields).encode())


def signed_again(fields: dict[str, Any], keys: Keys, **changed: Any) -> dict[str, Any]:
    """Return a seal whose head was changed, and signed by a key."""
    head = {**json.loads(fields["head"]), "key": keys.signer.public.name, **changed}
    text = Head.decode(json.dumps(head).encode(), "head").encode()
    return {**fields, "head": text.decode(), "signature": keys.signer.sign(text).hex()}


def root_of(fields: dict[str, Any]) -> str:
    return Seal.decode(json.dumps(fields).encode(), "seal").root


def verify_folder(folder: Path, *arguments: object) -> tuple[int, str]:
    """Run the verifier of a folder in this process; return its exit code and what it printed."""
    said = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        redirect_stdout(said),
        redirect_stderr(said),
        pytest.raises(SystemExit) as ended,
    ):
        patch.setattr(sys, "argv", [str(folder / "verify.py"), *map(str, arguments)])
        runpy.run_path(sys.argv[0], run_name="__main__")
    return int(str(ended.value.code)), said.getvalue()


def verify_alone(folder: Path, *arguments: object) -> tuple[int, str]:
    """Run it in a process that has Python's standard library alone."""
    command = ["/usr/bin/env", "-i", "PATH=/usr/bin:/bin", sys.executable, "-I", "-S", str(folder / "verify.py")]
    ended = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, check=False, cwd="/")
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.returncode, ended.stdout + ended.stderr

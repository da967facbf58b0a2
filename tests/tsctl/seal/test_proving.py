"""`tsctl prove`: the folder verifies on a host without this project, and names each place that is tampered with."""

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.made_archive import MadeArchive, batches
from tests.matrix import cases
from tests.tsctl.gc.archives import keep_last, run_in, ship
from tests.tsctl.running import Run
from tests.tsctl.seal.sealed import Keys, seal, signed_again, verify_alone, verify_folder
from ts_common.archive.object_keys import SegmentName
from tsctl.cli import run as run_tsctl
from tsctl.seal.leaves import Head, Seal
from tsctl.seal.merkle import leaf_hash, root_of

Fields = dict[str, Any]


@pytest.fixture
def archive(tmp_path: Path) -> MadeArchive:
    """Ship eight segments of topic t, sealed by three seals."""
    made = MadeArchive(tmp_path / "store")
    ship(made, "t", 0, 80)
    return made


@dataclass(frozen=True)
class Original:
    """An archive, and a folder that proves its offsets 15 to 65."""

    archive: MadeArchive
    keys: Keys
    heads: list[Head]
    folder: Path


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    path = tmp_path_factory.mktemp("original")
    archive, keys = MadeArchive(path / "store"), Keys(path)
    ship(archive, "t", 0, 80)
    heads = seal(archive, keys, most_leaves=3).heads
    assert run_tsctl(["prove", str(path / "proof"), *map(str, proving(archive, keys))]) == 0
    return Original(archive, keys, heads, path / "proof")


def proving(archive: MadeArchive, keys: Keys) -> tuple[object, ...]:
    named = ("--url", archive.location, "--cluster", "prod", "--public-key", keys.public)
    return "--topic", "t", "--from", 15, "--to", 65, *named


class Proved:
    """A copy of the folder, which a test may change."""

    def __init__(self, original: Original, folder: Path) -> None:
        shutil.copytree(original.folder, folder)
        self.archive, self.keys, self.heads, self.folder = original.archive, original.keys, original.heads, folder

    def verify(self, *arguments: object) -> tuple[int, str]:
        return verify_folder(self.folder, "--public-key", self.keys.public, *arguments)

    def verify_alone(self) -> tuple[int, str]:
        return verify_alone(self.folder, "--public-key", self.keys.public)

    def names(self) -> list[str]:
        return sorted(str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if path.is_file())

    def change(self, name: str, change: Callable[[Fields], object]) -> None:
        """Change a JSON file."""
        fields = json.loads((self.folder / name).read_bytes())
        change(fields)
        (self.folder / name).write_text(json.dumps(fields, separators=(",", ":")))


@pytest.fixture
def proved(original: Original, tmp_path: Path) -> Proved:
    return Proved(original, tmp_path / "proof")


def test_the_folder_verifies_with_the_standard_library_and_openssl(proved: Proved, run: Run, tmp_path: Path) -> None:
    """It has the six segments of the range, all heads, and it needs neither the store nor this project."""
    heads = [f"heads/{number}.{suffix}" for number in (1, 2, 3) for suffix in ("json", "sig")]
    segments = [f"segments/{number:04d}.log" for number in range(1, 7)]
    assert proved.names() == sorted(["README.txt", "proof.json", "verify.py", *heads, *segments])
    ended = run("prove", tmp_path / "again", *proving(proved.archive, proved.keys), "--json")
    assert ended.document["files"] == 6
    code, said = proved.verify_alone()
    assert (code, said) == (0, "RIGHT: files: 6; seals: 3; the files are unchanged since they were sealed\n")
    assert proved.verify("--known", f"3:{proved.heads[2].sha256}")[0] == 0


def test_the_lines_of_the_readme_verify_a_head_by_hand(proved: Proved) -> None:
    """With openssl alone."""
    line = next(each for each in (proved.folder / "README.txt").read_text().splitlines() if "pkeyutl" in each)
    command = line.replace("sealer.pub", str(proved.keys.public)).split()
    assert subprocess.run(command, cwd=proved.folder, capture_output=True, check=False).returncode == 0
    (proved.folder / "heads/1.json").write_text("{}")
    assert subprocess.run(command, cwd=proved.folder, capture_output=True, check=False).returncode != 0


@pytest.mark.parametrize("where", cases(product(range(1, 7), (0, -1)), quick=[(1, 0), (6, -1)]))
def test_each_changed_file_is_named(proved: Proved, where: tuple[int, int]) -> None:
    """Its first and its last byte; so is a missing one."""
    number, place = where
    file = proved.folder / f"segments/{number:04d}.log"
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    code, said = proved.verify_alone()
    assert (code, f"the file segments/{number:04d}.log has other bytes" in said) == (1, True)
    assert "no right file has the offsets from" in said
    file.unlink()
    code, said = proved.verify()
    assert (code, f"the file 'segments/{number:04d}.log' is missing" in said) == (1, True)


def leaf_changed(**changed: Any) -> Callable[[Fields], object]:
    def change(proof: Fields) -> None:
        entry = proof["leaves"][2]
        entry["leaf"] = json.dumps({**json.loads(entry["leaf"]), **changed}, separators=(",", ":"))

    return change


PROOF_CHANGES: dict[str, tuple[Callable[[Fields], object], str]] = {
    "key": (leaf_changed(key="prod/t-0/x.log"), "its path does not lead to the root"),
    "size": (leaf_changed(size=5), "its path does not lead to the root"),
    "sha256": (leaf_changed(sha256="0" * 64), "its path does not lead to the root"),
    "base": (leaf_changed(base=0), "its path does not lead to the root"),
    "end": (leaf_changed(end=99), "its path does not lead to the root"),
    "epochs": (leaf_changed(epochs=[]), "its path does not lead to the root"),
    "another seal": (lambda proof: proof["leaves"][2].update(seal=3), "its path does not lead to the root"),
    "no such seal": (lambda proof: proof["leaves"][2].update(seal=9), "no right head of that seal"),
    "place": (lambda proof: proof["leaves"][2].update(index=1), "its path does not lead to the root"),
    "path": (lambda proof: proof["leaves"][2]["path"].reverse(), "its path does not lead to the root"),
    "shorter path": (lambda proof: proof["leaves"][2]["path"].pop(), "its path does not lead to the root"),
    "longer path": (lambda proof: proof["leaves"][2]["path"].append("00" * 32), "its path does not lead to the root"),
    "another file": (lambda proof: proof["leaves"][2].update(file="segments/0001.log"), "has other bytes"),
    "a file elsewhere": (lambda proof: proof["leaves"][2].update(file="../../etc/passwd"), "is missing"),
    "no file": (lambda proof: proof["leaves"][2].update(file=None), "no right file has the offsets from 30"),
    "a leaf less": (lambda proof: proof["leaves"].pop(2), "no right file has the offsets from 30"),
    "a larger range": (
        lambda proof: proof["partitions"][0].update({"to": 75}),
        "no right file has the offsets from 70",
    ),
    "no path": (lambda proof: proof["leaves"][2].pop("path"), "the folder is damaged: KeyError"),
    "no leaves": (lambda proof: proof.update(leaves=5), "the folder is damaged: TypeError"),
}


QUICK_CHANGES = ["sha256", "no such seal", "place", "shorter path", "longer path", "a file elsewhere", "no file"]


@pytest.mark.parametrize("name", cases(PROOF_CHANGES, quick=[*QUICK_CHANGES, "a larger range", "no leaves"]))
def test_each_part_of_the_proof_that_was_changed_is_named(proved: Proved, name: str) -> None:
    """Leaves, places, paths, files and the range; a hostile file is a message and no traceback."""
    change, expected = PROOF_CHANGES[name]
    proved.change("proof.json", change)
    code, said = proved.verify()
    assert (code, expected in said) == (1, True), said


HEAD_CHANGES: dict[str, dict[str, Any]] = {
    "root": {"root": "0" * 64},
    "previous": {"previous": "0" * 64},
    "time": {"time": 1},
    "number": {"seal": 3},
    "leaves": {"leaves": 4},
    "cluster": {"cluster": "x"},
    "key": {"key": "0" * 64},
}


@pytest.mark.parametrize("name", cases(HEAD_CHANGES, quick=["root", "number", "key"]))
def test_each_field_of_a_head_that_was_changed_is_named(proved: Proved, name: str) -> None:
    """The signature is wrong, or no given key has that name; the next head names the former one."""
    proved.change("heads/2.json", lambda head: head.update(HEAD_CHANGES[name]))
    code, said = proved.verify()
    assert code == 1
    assert ("seal 2: signed by the key" if name == "key" else "seal 2: the signature is wrong") in said
    assert "seal 3: it does not continue the seal before" in said


def test_a_chain_that_was_cut_or_signed_again_is_named(proved: Proved, tmp_path: Path) -> None:
    """A missing head; a head of another key; with the stolen key, by a head that is known from elsewhere."""
    other, head, signature = Keys(tmp_path, "other"), proved.folder / "heads/3.json", proved.folder / "heads/3.sig"
    known, text, signed = ("--known", f"3:{proved.heads[2].sha256}"), head.read_bytes(), signature.read_bytes()
    for keys, said in ((other, "which no --public-key has"), (proved.keys, "known is")):
        changed = signed_again({"head": text.decode(), "signature": ""}, keys, time=proved.heads[2].time + 1)
        head.write_text(changed["head"])
        signature.write_bytes(bytes.fromhex(changed["signature"]))
        assert said in proved.verify(*known)[1]
    assert proved.verify()[0] == 0  # of a stolen key only a known head, a token or a lock is evidence
    head.write_bytes(text)
    signature.write_bytes(signed[:-1] + bytes([signed[-1] ^ 1]))
    assert "seal 3: the signature is wrong" in proved.verify()[1]
    signature.write_bytes(signed)
    head.unlink()
    assert "seal 3: it is missing" in proved.verify(*known)[1]
    (proved.folder / "heads/1.json").unlink()
    assert "seal 1: it is missing" in proved.verify()[1]


def test_another_key_than_the_sealers_verifies_nothing(proved: Proved, tmp_path: Path) -> None:
    """The folder's own files name no key that counts; a file that is no key neither."""
    other = Keys(tmp_path, "other")
    for key in (other.public, tmp_path / "missing.pub", proved.folder / "README.txt"):
        code, said = verify_folder(proved.folder, "--public-key", key)
        assert (code, "which no --public-key has" in said) == (1, True)


def test_what_retention_or_an_overwrite_did_is_in_the_folder(
    run: Run, archive: MadeArchive, keys: Keys, tmp_path: Path
) -> None:
    """A retired segment is a leaf without a file, with the leaf that explains it."""
    seal(archive, keys, most_leaves=3)
    size = archive.store.head(archive.partition("t").segment(SegmentName(0))).size
    for _ in range(2):
        run_in(archive.store, archive, keep_last(6, size), grace=0)
    seal(archive, keys)
    named = ("--url", archive.location, "--cluster", "prod", "--public-key", keys.public)
    ended = run("prove", tmp_path / "proof", "--topic", "t", "--to", 30, *named)
    assert ended.code == 0, ended.err
    code, said = verify_folder(tmp_path / "proof", "--public-key", keys.public)
    assert code == 0, said
    assert said.count("retired: prod/t-0/") == said.count("log: prod/t-0/") == 0
    whole = run("prove", tmp_path / "all", "--topic", "t", "--from", 0, *named)
    assert (whole.code, "t-0" in whole.err) == (1, True)  # offsets below log.start are lost to readers
    code, said = verify_folder(tmp_path / "all", "--public-key", keys.public)
    assert (said.count("retired: prod/t-0/"), said.count("log: prod/t-0/")) == (2, 2), said


def test_a_copy_that_was_added_later_is_shown(run: Run, archive: MadeArchive, keys: Keys, tmp_path: Path) -> None:
    """The folder has both copies of the offsets, and the verifier names the two seals."""
    seal(archive, keys)
    archive.put_segment("t", 30, batches((30, 40), epoch=9, value=b"forged"), variant=True)
    seal(archive, keys)
    named = ("--url", archive.location, "--cluster", "prod", "--public-key", keys.public)
    assert run("prove", tmp_path / "proof", "--topic", "t", "--from", 30, "--to", 40, *named).code == 0
    code, said = verify_folder(tmp_path / "proof", "--public-key", keys.public)
    assert (code, said.splitlines()[0]) == (0, "added later: seals 1 and 2 have offset 30 of t-0")


def test_a_folder_is_not_written_over_and_not_of_unsealed_segments(
    run: Run, archive: MadeArchive, keys: Keys, tmp_path: Path
) -> None:
    """Each mistake is one error; a range that is sealed in part is a warning and code 1."""
    named = ("--url", archive.location, "--cluster", "prod")
    key = ("--public-key", keys.public)
    for given, said in (
        ((tmp_path, *key), "exists, and is not overwritten"),
        ((tmp_path / "a",), "--public-key is missing"),
        ((tmp_path / "a", *key), "no seal has a segment of this range"),
    ):
        ended = run("prove", *given, "--topic", "t", *named)
        assert (ended.code, said in ended.err) == (2, True), ended.err
    seal(archive, keys)
    ship(archive, "t", 80, 90)
    ended = run("prove", tmp_path / "a", "--topic", "t", *key, *named)
    assert (ended.code, "in no seal yet" in ended.err) == (1, True)
    archive.store.delete([archive.keys.seal(1)])
    archive.store.put(archive.keys.seal(2), b"{}")
    refused = run("prove", tmp_path / "b", "--topic", "t", *key, *named)
    assert (refused.code, "a folder would not verify" in refused.err) == (1, True)
    assert not (tmp_path / "b").exists()


def test_a_changed_segment_is_not_written_as_proof(run: Run, archive: MadeArchive, keys: Keys, tmp_path: Path) -> None:
    """The command ends with its name, and leaves no folder."""
    seal(archive, keys)
    key = archive.partition("t").segment(SegmentName(10))
    data, info = archive.store.get(key)
    archive.store.put(key, data[:-1] + bytes([data[-1] ^ 1]), metadata=info.metadata)
    named = ("--url", archive.location, "--cluster", "prod", "--public-key", keys.public)
    ended = run("prove", tmp_path / "proof", "--topic", "t", *named)
    assert (ended.code, f"{key}: SHA-256 " in ended.err) == (1, True)
    assert [each.name for each in tmp_path.iterdir() if "proof" in each.name or "partial" in each.name] == []


CA = """
[ tsa ]
default_tsa = t
[ t ]
serial = {0}/serial
signer_cert = {0}/tsa.pem
signer_key = {0}/tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
[ ext ]
extendedKeyUsage = critical,timeStamping
"""


@pytest.fixture
def authority(tmp_path: Path) -> Callable[[str], Path]:
    """Return an authority of timestamps, by openssl: it makes the response to a request for a hash."""
    (tmp_path / "tsa.cnf").write_text("[req]\ndistinguished_name=dn\n[dn]\n" + CA.format(tmp_path))
    (tmp_path / "serial").write_text("01\n")

    def openssl(*arguments: object) -> None:
        subprocess.run(["openssl", *map(str, arguments)], cwd=tmp_path, check=True, capture_output=True)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "tsa.key")
    openssl("req", "-x509", *key, "-subj", "/CN=tsa", "-days", "1", "-config", "tsa.cnf", "-extensions", "ext",
            "-out", "tsa.pem")  # fmt: skip

    def respond(digest: str) -> Path:
        openssl("ts", "-query", "-digest", digest, "-sha256", "-cert", "-out", "a.tsq")
        openssl("ts", "-reply", "-config", "tsa.cnf", "-queryfile", "a.tsq", "-out", f"{digest[:8]}.tsr")
        return tmp_path / f"{digest[:8]}.tsr"

    return respond


def test_a_timestamp_token_is_stored_and_verified_with_the_folder(
    run: Run, archive: MadeArchive, keys: Keys, tmp_path: Path, authority: Callable[[str], Path]
) -> None:
    """By openssl and the authority's certificate; a token of another head is refused, a damaged one is named."""
    (head,) = seal(archive, keys).heads
    named = ("--url", archive.location, "--cluster", "prod", "--public-key", keys.public)
    for wrong in (authority("0" * 64), tmp_path / "missing", keys.public):
        refused = run("seal", "timestamp", 1, "--response", wrong, *named)
        assert (refused.code, "Traceback" in refused.err) == (2, False)
    assert f"openssl ts -query -digest {head.sha256}" in refused.err
    response = authority(head.sha256)
    assert run("seal", "timestamp", 1, "--response", response, *named).code == 0
    assert run("seal", "timestamp", 1, "--response", response, *named).code == 0  # repeated
    assert run("seal", "timestamp", 1, "--response", authority(head.sha256), *named).code in {0, 75}  # another token
    assert run("seal", "timestamp", 2, "--response", response, *named).code == 2
    (row,) = run("seal", "ls", *named, "--json").document["seals"]
    assert row["token"] is True
    assert run("prove", tmp_path / "proof", "--topic", "t", *named).code == 0
    given = (tmp_path / "proof", "--public-key", keys.public)
    assert "not checked: the timestamp token of seal 1" in verify_folder(*given)[1]
    assert verify_folder(*given, "--tsa-ca", tmp_path / "tsa.pem")[0] == 0
    token = tmp_path / "proof/heads/1.tsr"
    data = bytearray(token.read_bytes())
    data[-10] ^= 1
    token.write_bytes(data)
    code, said = verify_folder(*given, "--tsa-ca", tmp_path / "tsa.pem")
    assert (code, "seal 1: the timestamp token is wrong" in said) == (1, True)


def test_a_leaf_hash_is_over_the_text_in_the_folder(proved: Proved) -> None:
    """So the text of the proof is what was hashed, whatever a JSON parser makes of it."""
    archive = proved.archive
    proof = json.loads((proved.folder / "proof.json").read_bytes())
    stored = Seal.decode(archive.store.get(archive.keys.seal(1))[0], "seal")
    texts = [leaf.encode() for leaf in stored.leaves]
    assert root_of([leaf_hash(text) for text in texts]).hex() == json.loads(stored.head)["root"]
    assert {entry["leaf"].encode() for entry in proof["leaves"] if entry["seal"] == 1} <= set(texts)

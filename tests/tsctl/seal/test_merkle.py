"""Merkle trees by the published vectors of RFC 6962's reference implementation, and paths of every leaf."""

from hashlib import sha256

import pytest

from tsctl.seal.folder_verifier import root_by_path as root_of_the_verifier
from tsctl.seal.merkle import leaf_hash, path_of, root_by_path, root_of

# Of certificate-transparency's merkletree tests: the leaves, and the root over the first n of them.
LEAVES = [
    bytes.fromhex(each)
    for each in ("", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f")
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


@pytest.mark.parametrize("size", range(1, len(LEAVES) + 1))
def test_the_root_is_that_of_the_published_vectors(size: int) -> None:
    """For each number of leaves."""
    assert root_of([leaf_hash(each) for each in LEAVES[:size]]).hex() == ROOTS[size - 1]
    assert root_of([]) == sha256().digest()


def test_each_path_leads_to_the_root_and_no_other_one_does() -> None:
    """Trees of every shape; another leaf, place, size or path has another root, here and in a folder's verifier."""
    for size in (*range(1, 18), 63, 64, 65):
        data = [b"%d" % each for each in range(size)]
        hashes = [leaf_hash(each) for each in data]
        root = root_of(hashes)
        for index in range(size):
            path = path_of(hashes, index)
            assert root_by_path(hashes[index], index, size, path) == root
            texts = [each.hex() for each in path]
            assert root_of_the_verifier(data[index], index, size, texts) == root.hex()
            assert root_by_path(leaf_hash(b"x"), index, size, path) != root
            assert root_by_path(hashes[index], index, size, (*path, root)) is None
            assert root_of_the_verifier(data[index], index, size, [*texts, root.hex()]) is None
            if path:
                assert root_by_path(hashes[index], index, size, path[:-1]) is None
                assert root_by_path(hashes[index], index, size, (root, *path[1:])) != root
                assert root_by_path(hashes[index], index ^ 1, size, path) != root
    with pytest.raises(IndexError):
        path_of([b""], 1)

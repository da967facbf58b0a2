"""ETags that are no MD5 of the content, as S3's are under SSE-KMS: nothing believes that they are."""

from hashlib import md5
from pathlib import Path

import pytest

from ts_common.archive.catalog import read_catalog
from ts_common.archive.commit import Commit, encode_log_start
from ts_common.archive.epoch_history import EpochHistory
from ts_common.archive.object_keys import ClusterKeys
from ts_common.model import TopicPartition
from ts_common.store.factory import open_store

KEYS = ClusterKeys("prod").partition(TopicPartition("t", 0))


@pytest.mark.parametrize("stands", [0, 50])
def test_log_start_is_read_where_its_etag_says_nothing(tmp_path: Path, stands: int) -> None:
    """Whether it is what the commit lets expect, or retention moved it: a directory's ETags are no MD5 either."""
    commit = Commit(0, 100, 5, EpochHistory(((1, 0),)), 0, "A" * 22, 1, 0, "nonce")
    with open_store(tmp_path.as_uri()) as store:
        store.put(KEYS.commit, commit.encode())
        written = store.put(KEYS.log_start, encode_log_start(stands))
        assert md5(encode_log_start(stands)).hexdigest() not in written.etag
        assert read_catalog(store, KEYS).log_start == stands

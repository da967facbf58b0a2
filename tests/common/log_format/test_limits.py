import pytest

from ts_common.errors import BatchTooLarge
from ts_common.log_format.limits import DEFAULT_LIMIT, BatchLimit


def test_the_error_of_a_large_batch_names_the_option_that_allows_it() -> None:
    """The batch is not damaged, so the user gets a way to read it."""
    with pytest.raises(BatchTooLarge, match=r"^k: 200 bytes, and maxBatchBytes allows 100 bytes: raise it$"):
        BatchLimit(100, "maxBatchBytes").refuse("k: 200 bytes")
    assert DEFAULT_LIMIT.most == 128 << 20

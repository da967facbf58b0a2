"""Keys that messages name without the parser of the file."""

from ts_common.config.cluster_config import ClusterConfig
from ts_common.config.keys import ENTROPY_BITS_KEY, STUCK_AFTER_MS


def test_the_keys_and_defaults_are_those_of_the_parser() -> None:
    """A message that names another key would send the operator to a key that the parser rejects."""
    fields = ClusterConfig.model_fields
    assert fields["entropy_bits"].alias == ENTROPY_BITS_KEY
    assert fields["stuck_after_ms"].default == STUCK_AFTER_MS

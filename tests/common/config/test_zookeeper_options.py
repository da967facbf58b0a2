from ts_common.config.zookeeper_options import PREFIX, SECRETS, options_of


def test_options_are_returned_by_name_without_the_prefix() -> None:
    """Keys outside the prefix are left alone, and values have no spaces around them."""
    problems: list[str] = []
    properties = {PREFIX + "ssl.client.enable": " true ", "zookeeper.connect": "zk:2181", PREFIX + "sasl.username": "u"}
    assert options_of(properties, problems) == {"ssl.client.enable": "true", "sasl.username": "u"}
    assert problems == []


def test_an_unknown_option_is_a_problem_that_suggests_a_name() -> None:
    """A misspelt key below the prefix is reported, not ignored."""
    problems: list[str] = []
    assert options_of({PREFIX + "ssl.client.enabled": "true"}, problems) == {}
    assert problems == [f"{PREFIX}ssl.client.enabled: unknown key; did you mean {PREFIX}ssl.client.enable?"]


def test_every_password_is_a_secret_and_no_file_name_is() -> None:
    """The names whose values are hidden are those of passwords."""
    assert {"ssl.truststore.password", "ssl.keystore.password", "sasl.password"} == SECRETS

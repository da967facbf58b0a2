"""Messages about mistakes, unavailable stores and internal errors contain no credentials."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from dev.local.ports import LOOPBACK, free_port
from tests.tsctl.running import Run
from tsctl.exit_codes import ExitCode

URL = "storage.service.endpoint.url"
S3 = "storage.service.endpoint.s3."
SECRET = "Zq7x-tool-secret"
AWAY = f"me:{SECRET}@{LOOPBACK}"  # no server listens there


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set secrets of each store."""
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "AKIA",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_MAX_ATTEMPTS": "1",
        "AZURE_STORAGE_ACCOUNT": "account",
        "AZURE_STORAGE_SAS_TOKEN": f"sv=2021-08-06&sig={SECRET}",
        "AZURE_STORAGE_SERVICE_ENDPOINT": f"http://{LOOPBACK}:{free_port()}",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("url", "variables", "said"),
    [
        (f"s3://AKIA:{SECRET}@bucket/base", {}, "contains credentials"),
        (f"webhdfs://{AWAY}:1/base", {}, "contains credentials"),
        ("s3://bucket/base", {"AWS_ENDPOINT_URL": f"http://{AWAY}:{{port}}"}, f"***@{LOOPBACK}"),
        (
            "s3://bucket/base",
            {"AWS_ENDPOINT_URL": "http://s3.example", "HTTP_PROXY": f"http://{AWAY}:{{port}}"},
            LOOPBACK,
        ),
        ("az://container/base", {}, "no connection"),
        ("az://container/base", {"AZURE_STORAGE_SAS_TOKEN": "", "AZURE_STORAGE_KEY": SECRET}, "not base64"),
    ],
)
def test_a_store_that_is_away_is_named_without_credentials(
    run: Run, monkeypatch: pytest.MonkeyPatch, url: str, variables: Mapping[str, str], said: str
) -> None:
    """They may be in its URL, endpoint, proxy, signature or key; the message still names the location."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(port=free_port()))
    ended = run("ls", "--url", url, "--cluster", "prod")
    assert ended.code in {ExitCode.REFUSED, ExitCode.TRY_AGAIN}
    assert said in ended.err
    assert SECRET not in ended.out + ended.err


def test_files_with_mistakes_are_refused_without_their_secrets(run: Run, tmp_path: Path) -> None:
    """The files are the agents' and that of a Kafka client."""
    store = tmp_path / "store"
    store.mkdir()
    file = tmp_path / "prod.properties"
    file.write_text(
        f"{URL}={store.as_uri()}\n{S3}proxy=me:{SECRET}@h\nts.segment.uploader.kafka.client.x={SECRET}\na={SECRET}\n"
    )
    ended = run("ls", "--config", file)
    assert ended.code == ExitCode.REFUSED
    assert "s3.proxy" in ended.err
    client = tmp_path / "client.properties"
    client.write_text(f"sasl.password={SECRET}\nno.such.setting={SECRET}\n")
    named = ("--url", store.as_uri(), "--cluster", "prod", "--command-config", client)
    refused = run("verify", *named, "--bootstrap-server", f"{LOOPBACK}:{free_port()}")
    assert "no.such.setting" in refused.err
    assert SECRET not in ended.err + refused.err


def test_an_agents_address_with_credentials_is_refused_without_them(run: Run) -> None:
    """It is not an address, and the message shows it without the credentials."""
    ended = run("status", f"http://{AWAY}:9464")
    assert ended.code == ExitCode.REFUSED
    assert f"http://***@{LOOPBACK}:9464: not an address" in ended.err
    assert SECRET not in ended.err


def test_an_error_of_its_own_shows_a_traceback_without_credentials(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library may put anything into its message."""
    from tsctl.cli import run as run_here  # the fixture would treat a traceback as a failure

    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError(f"unforeseen at http://{AWAY}")

    monkeypatch.setattr("tsctl.commands.ls.open_archive", broken)
    assert run_here(["ls", "--url", "s3://bucket/base", "--cluster", "prod"]) == ExitCode.BROKEN
    said = capfd.readouterr().err
    assert f"unforeseen at http://***@{LOOPBACK}" in said
    assert SECRET not in said

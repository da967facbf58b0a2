"""What `ts-endpoint serve` makes of the options in files below deploy."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer

from ts_endpoint import cli
from ts_endpoint.serving.options import EndpointSettings, Options, check


def settings_of(arguments: Sequence[str], conf: Path, properties: str | None = None) -> EndpointSettings:
    """Return the settings of a command line; its properties file is written to a directory of the test.

    Args:
        arguments: after `serve`.
        conf: directory of the test.
        properties: the text of the file that `--config` names.
    """
    group: Any = typer.main.get_command(cli.app)
    found: list[Options] = []
    with pytest.MonkeyPatch.context() as patch:

        def checked(options: Options) -> EndpointSettings:
            found.append(options)
            raise typer.Exit

        patch.setattr(cli, "check", checked)
        patch.setattr(cli, "configure_logs", lambda *_: None)
        group.commands["serve"].main([*arguments], standalone_mode=False)
    (options,) = found
    assert options.config is not None
    file = conf / options.config.name
    file.write_text(properties or "storage.service.endpoint.url=s3://example-archive/base/prefix\n")
    return check(replace(options, config=file))

"""`ts-uploader` on a terminal: no path, key or value of a file that it reads commands it."""

from pathlib import Path

import pytest

from tests.hostile_text import ESCAPES, on_terminal, raw_in

# As Java's properties and the shell can name them; a newline would end the value.
VALUE = ESCAPES.replace("\u2028", "").replace("\u2029", "")
PROPERTIES = "".join(character if " " <= character <= "~" else f"\\u{ord(character):04x}" for character in VALUE)


@pytest.mark.parametrize("command", [("check",), ("check", "--json"), ("run",), ("run", "--log-format", "json")])
def test_r16_no_text_of_a_file_commands_the_terminal(tmp_path: Path, command: tuple[str, ...]) -> None:
    """Log dirs, a cluster id, an unknown key and a path are shown, with their control characters escaped."""
    logs = tmp_path / f"logs{VALUE}"
    conf = tmp_path / "conf"
    for directory in (logs, conf):
        directory.mkdir()
    (conf / "prod.properties").write_text(f"key{PROPERTIES}=x\nstorage.service.endpoint.url=file:///{PROPERTIES}\n")
    broker = tmp_path / "server.properties"
    broker.write_text(f"broker.id=1\nlog.dirs={tmp_path}/logs{PROPERTIES},/no{PROPERTIES}\nzookeeper.connect=h:1\n")
    for cluster in ("prod", f"prod{VALUE}"):
        arguments = (str(conf), "--server-properties", str(broker), "--cluster-id", cluster)
        code, written = on_terminal(["ts-uploader", *command, *arguments])
        assert "pwned" in written
        assert raw_in(written) == []
        assert code == 2

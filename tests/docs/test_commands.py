"""Blocks are read from a page and run; nothing of a page is skipped silently."""

from pathlib import Path

import pytest

from tests.docs.commands import Block, CommandFailedError, Shell, blocks, commands

PAGE = """\
# A page

```sh
export NAME=x
```

## First

```sh
# no heading
## nor this
cat /etc/kafka/a && echo $NAME   # said
```

```text
said
```

### Second

```
true
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return path


def test_blocks_are_found_by_heading_and_language(page: Path) -> None:
    """In their order, each with its line and its output; a comment in a block is not a heading."""
    found = [(block.section, block.line, block.language) for block in blocks(page)]
    assert found == [("", 3, "sh"), ("First", 9, "sh"), ("First", 15, "text"), ("Second", 21, "")]
    (first,) = blocks(page, "First", language="sh")
    assert first.shown == "said\n"
    assert [block.text for block in blocks(page, "Second")] == ["true\n"]


def test_a_text_block_is_what_the_block_before_it_shows(page: Path) -> None:
    """A block of another language, or prose, in between breaks the connection."""
    other = "```sh\nls\n```\n```text\nfiles\n```\n"
    page.write_text(f"```python\nN = 1\n```\n{other}```python\nprint(N + 1)\n```\nso:\n```text\n3\n```\n")
    assert [(block.line, block.shown) for block in blocks(page, language="python")] == [(1, ""), (10, "3\n")]


def test_a_missing_section_is_an_error(page: Path) -> None:
    """A test of a page that lost its commands must not pass, and neither must one of a malformed page."""
    with pytest.raises(ValueError, match=r"page.md: no fenced block in 'Third'"):
        blocks(page, "Third")
    with pytest.raises(ValueError, match=r"page.md: no python block"):
        blocks(page, language="python")
    page.write_text("text\n```sh\nls\n")
    with pytest.raises(ValueError, match="line 2: this block does not end"):
        blocks(page)


def test_commands_are_separated() -> None:
    """Comments and empty lines are skipped; a backslash joins lines."""
    block = Block("", 1, "sh", "# first\nls \\\n  -l   # long\n\n  # last\ncat a#b ${c# d}\n")
    assert commands(block) == ["ls   -l", "cat a#b ${c# d}"]


def test_a_block_runs_in_the_tests_places(page: Path, tmp_path: Path) -> None:
    """Names are replaced only at their beginning, and variables of the page get the test's values."""
    (tmp_path / "a").write_text("the file\n")
    shell = Shell(tmp_path, {"/etc/kafka": str(tmp_path), "/etc/kafka/b": "/there", "h:9": "127.0.0.1:1"})
    assert shell.here("/etc/kafka/a x/etc/kafka /etc/kafkas") == f"{tmp_path}/a x/etc/kafka /etc/kafkas"
    assert shell.here("/etc/kafka/b http://h:9/ h:99") == "/there http://127.0.0.1:1/ h:99"
    setting, block = blocks(page)[:2]
    assert shell.run(setting, block, NAME="two words") == "the file\ntwo words\n"
    with pytest.raises(ValueError, match="the page does not set OTHER"):
        shell.run(setting, OTHER="x")


def test_an_unexpected_exit_code_is_reported(tmp_path: Path) -> None:
    """With command and output; also in the middle of a block, and where a pipe would hide the failure."""
    shell = Shell(tmp_path, {})
    assert shell.ends(3, "echo so; exit 3") == "so\n"
    for failing in ("echo why >&2; false", "false\ntrue", "false | true", "echo $NOT_SET_BY_ANYBODY"):
        with pytest.raises(CommandFailedError, match="code 1"):
            shell.run(failing)
    with pytest.raises(CommandFailedError, match="why"):
        shell.run("echo why >&2; false")
    with pytest.raises(CommandFailedError, match="code 0"):
        shell.ends(1, "true")

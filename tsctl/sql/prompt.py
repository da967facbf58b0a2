"""The prompt of `tsctl sql`: statements with history and completion of topics."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.auto_suggest import AutoSuggestFromHistory
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

_COLUMNS: Final = ("key", "value", "topic", "partition", '"offset"', "timestamp", '"timestampType"')
_END: Final = {"exit", "quit", r"\q", ".exit", ".quit"}
_HELP: Final = (
    'A statement ends with ;. Topics are tables: write names such as "my-topic" with quotation marks. '
    "show tables; lists them, exit or Ctrl-D ends."
)


def converse(topics: Sequence[str], run: Callable[[str], None], write: Callable[[str], None]) -> None:
    """Read statements from the terminal until the user ends it.

    Args:
        run: runs a text that ends with `;`, and reports its errors.
        write: writes a line.
    """
    session: PromptSession[str] = PromptSession(
        history=_history(),
        auto_suggest=AutoSuggestFromHistory(),
        completer=WordCompleter([*topics, *_COLUMNS], ignore_case=True),
        complete_while_typing=False,
    )
    write(_HELP)
    pending = ""
    while True:
        try:
            line = session.prompt("sql> " if not pending else "...> ")
        except KeyboardInterrupt:
            pending = ""
            continue
        except EOFError:
            return
        word = line.strip().rstrip(";").lower()
        if not pending and word in _END:
            return
        pending = f"{pending}\n{line}".strip()
        if pending.endswith(";"):
            run(pending)
            pending = ""


def _history() -> History:
    """Return the history of earlier sessions; without a writable directory that of this one."""
    state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "tsctl"
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = state / "sql-history"
        path.touch(mode=0o600)
    except (OSError, RuntimeError):
        return InMemoryHistory()
    return FileHistory(str(path))

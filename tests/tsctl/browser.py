"""A real browser without a window: what a page's document is after its scripts ran, and what it looks like."""

import re
import shutil
import subprocess
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 240


def chromium() -> str:
    """The browser's command; `deploy/need-chromium` installs it."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    assert found is not None, "no Chromium: run deploy/need-chromium"
    return found


def open_page(page: Path, profile: Path, *, picture: Path | None = None, width: int = 1200, height: int = 1600) -> str:
    """The document after its scripts ran, as HTML; nothing but the file can be reached.

    Args:
        page: the file.
        profile: an empty directory for the browser's own files.
        picture: where a PNG of the window goes; None for none.
        width: of the window, in pixels.
        height: likewise.
    """
    command = [
        *(chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}", f"--window-size={width},{height}"),
        # Time for scripts, not for the clock: the page is taken when they have nothing left to do.
        "--virtual-time-budget=30000",
    ]
    if picture is not None:
        command.append(f"--screenshot={picture}")
    done = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, timeout=SECONDS, check=False, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def without_scripts(document: str) -> str:
    """The document's elements alone: the library's own text is no part of what is shown."""
    return re.sub(r"<script\b.*?</script>", "", document, flags=re.DOTALL)

"""A real browser for tests of pages: Debian's Chromium without a window (`make test` installs it).

screen = look(html, directory, width=390, dark=True)
screen["scrollWidth"]        what a script in the page would measure
complaints(url, directory)   the messages of the browser's console about a page
open_page(file, directory)   the document after its scripts ran, as HTML; without_scripts(...) leaves its elements
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 300
_HEIGHT = 800
# The page is in a frame of the wanted width, because a window has a minimum width.
_FRAME = """<!doctype html><body style="margin:0"><iframe id="page" style="border:0" width="{width}" height="{height}"
 srcdoc="{page}"></iframe><pre id="measured"></pre><script>
document.getElementById("page").addEventListener("load", function () {{
  const page = this.contentDocument, view = this.contentWindow;
  document.getElementById("measured").textContent = JSON.stringify((function () {{ {script} }})());
}});
</script>"""
_MEASURE = """
const style = view.getComputedStyle(page.body);
const texts = [...page.body.querySelectorAll("*")].filter(one => one.children.length === 0 && one.textContent.trim());
return {
  scrollWidth: page.documentElement.scrollWidth,
  background: style.backgroundColor,
  ink: style.color,
  smallest: Math.min(...texts.map(one => parseFloat(view.getComputedStyle(one).fontSize))),
  scripts: page.scripts.length,
  fetched: view.performance.getEntriesByType("resource").map(one => one.name),
  text: page.body.innerText,
};
"""


def look(page: str, directory: Path, *, width: int, dark: bool = False) -> dict[str, Any]:
    """Render a page and measure it.

    Args:
        page: HTML.
        directory: for the browser's own files.
        width: of the window, in CSS pixels.
        dark: whether the reader prefers dark colours.
    """
    file = directory / "frame.html"
    file.write_text(_FRAME.format(width=width, height=_HEIGHT, page=html.escape(page), script=_MEASURE))
    scheme = "--blink-settings=preferredColorScheme=0" if dark else "--blink-settings=preferredColorScheme=1"
    ended = _chromium(directory, scheme, "--dump-dom", file.as_uri())
    found = re.search(r'<pre id="measured">(.*?)</pre>', ended.stdout, re.DOTALL)
    assert found, ended.stderr[-2000:]
    measured: dict[str, Any] = json.loads(html.unescape(found[1]))
    return measured


def complaints(url: str, directory: Path) -> list[str]:
    """Return the messages of the browser's console: what its policy blocked, what it could not fetch."""
    ended = _chromium(directory, "--enable-logging=stderr", "--dump-dom", url)
    assert "<html" in ended.stdout, ended.stderr[-2000:]
    return [line for line in ended.stderr.splitlines() if "CONSOLE" in line and "favicon" not in line]


def served_text(url: str, directory: Path) -> str:
    """Return the document of a served page as the browser has it, as HTML."""
    return _chromium(directory, "--dump-dom", url).stdout


def open_page(page: Path, directory: Path, *options: str) -> str:
    """Return a file's document as HTML after its scripts ran; the browser has no network.

    Args:
        page: the file.
        directory: for the browser's own files.
        options: further ones of the browser.
    """
    nowhere = "--host-resolver-rules=MAP * ~NOTFOUND"
    return _chromium(directory, nowhere, "--window-size=1200,1600", *options, "--dump-dom", page.as_uri()).stdout


def without_scripts(document: str) -> str:
    """Remove scripts: a library's source is not visible text."""
    return re.sub(r"<script\b.*?</script>", "", document, flags=re.DOTALL)


def _chromium(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    assert program, "there is no chromium: make test installs it"
    command = [program, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={directory / 'chromium'}"]
    # The browser fetches only the page: no proxy, no background requests. The virtual time is a limit for scripts,
    # not for the clock: the browser prints the page as soon as its scripts are idle.
    quiet = ["--no-proxy-server", "--disable-background-networking", "--no-first-run", "--virtual-time-budget=30000"]
    quiet += ["--disable-dev-shm-usage"]
    return subprocess.run([*command, *quiet, *arguments], capture_output=True, text=True, timeout=_SECONDS, check=True)

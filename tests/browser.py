"""A real browser for tests of pages: Debian's Chromium without a window (`make test` installs it).

It starts once in a process; each page has a profile of its own.

screen = look(html, directory, width=390, dark=True)
screen["scrollWidth"]   what a script in the page would measure
complaints(url)         the messages of the browser's console about a page
open_page(file)         the document after its scripts ran, as HTML, without the scripts
"""

import atexit
import html
import json
import os
import re
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from dev.local.waiting import wait_for

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_SECONDS = 300
_VIRTUAL_MS = 30_000
# Without scripts: a library's source is not visible text, and has megabytes.
_DOCUMENT = """(() => {
  const shown = document.documentElement.cloneNode(true);
  shown.querySelectorAll("script").forEach(one => one.remove());
  return shown.outerHTML;
})()"""
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
        directory: for the frame's file.
        width: of the window, in CSS pixels.
        dark: whether the reader prefers dark colours.
    """
    file = directory / "frame.html"
    file.write_text(_FRAME.format(width=width, height=_HEIGHT, page=html.escape(page), script=_MEASURE))

    def measured() -> str:
        document, _ = _browser().open(file.as_uri(), scheme="dark" if dark else "light")
        found = re.search(r'<pre id="measured">(.*?)</pre>', document, re.DOTALL)
        assert found, document[-2000:]
        return html.unescape(found[1])

    # On a busy machine the document can be there before the frame has loaded.
    facts: dict[str, Any] = json.loads(wait_for(measured, "the page's frame to load"))
    return facts


def complaints(url: str) -> list[str]:
    """Return the messages of the browser's console: what its policy blocked, what it could not fetch."""
    document, said = _browser().open(url)
    assert "<html" in document
    return [line for line in said if "favicon" not in line]


def served_text(url: str) -> str:
    """Return the document of a served page as the browser has it, as HTML."""
    return _browser().open(url)[0]


def open_page(page: Path) -> str:
    """Return a file's document as HTML, without its scripts, after they ran; only loopback is its network."""
    return _browser().open(page.as_uri())[0]


class _Browser:
    """A process that runs commands of the DevTools protocol: JSON that ends with a zero byte, over a pair of pipes."""

    def __init__(self) -> None:
        program = next(filter(None, map(shutil.which, _NAMES)), None)
        assert program, "there is no chromium: make test installs it"
        self._profile = tempfile.TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True)
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={self._profile.name}"]
        # The browser fetches only pages of this machine: no proxy, no background requests.
        options += ["--no-proxy-server", "--disable-background-networking", "--no-first-run", "--disable-dev-shm-usage"]
        options += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--window-size=1200,1600"]
        options += ["--allow-file-access-from-files", "--remote-debugging-pipe"]
        commands, self._commands = os.pipe()
        self._events, events = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{events}', "browser", program, *options],
            pass_fds=[commands, events],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(events)
        self._number, self._received, self._seen = 0, b"", list[dict[str, Any]]()
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._events, selectors.EVENT_READ)

    def end(self) -> None:
        """End the browser."""
        self._selector.close()
        os.close(self._commands)
        os.close(self._events)
        self._process.kill()
        self._process.wait()
        self._profile.cleanup()

    def open(self, url: str, scheme: str = "light") -> tuple[str, list[str]]:
        """Return a page's document as HTML when its scripts are idle, and the messages of its console."""
        context = self._call("Target.createBrowserContext")["browserContextId"]
        target = self._call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable", session)
        preferred = [{"name": "prefers-color-scheme", "value": scheme}]
        self._call("Emulation.setEmulatedMedia", session, features=preferred)
        # The virtual time is a limit for scripts, not for the clock: it passes as soon as they are idle.
        policy = {"policy": "pauseIfNetworkFetchesPending", "budget": _VIRTUAL_MS}
        self._seen.clear()
        self._call("Page.navigate", session, url=url)
        self._call("Emulation.setVirtualTimePolicy", session, **policy)
        self._wait(lambda one: one.get("method") == "Emulation.virtualTimeBudgetExpired")
        document: str = self._call("Runtime.evaluate", session, expression=_DOCUMENT)["result"]["value"]
        said = [text for each in self._seen if (text := _said(each))]
        self._call("Target.disposeBrowserContext", browserContextId=context)
        return document, said

    def _call(self, method: str, session: str | None = None, /, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        number = self._number
        request = {"id": number, "method": method, "params": parameters}
        request |= {} if session is None else {"sessionId": session}
        os.write(self._commands, json.dumps(request).encode() + b"\0")
        answer = self._wait(lambda one: one.get("id") == number)
        assert "error" not in answer, (method, answer)
        result: dict[str, Any] = answer["result"]
        return result

    def _wait(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the next message of a kind; those before it are kept."""
        ends = time.monotonic() + _SECONDS
        while True:
            *whole, self._received = self._received.split(b"\0")
            for place, each in enumerate(map(json.loads, whole)):
                self._seen.append(each)
                if wanted(each):
                    self._received = b"\0".join([*whole[place + 1 :], self._received])
                    return self._seen[-1]
            assert self._selector.select(ends - time.monotonic()), "the browser does not answer"
            piece = os.read(self._events, 1 << 20)
            assert piece, "the browser ended"
            self._received += piece


def _said(event: dict[str, Any]) -> str:
    """Return an event's message in the console; empty for other events."""
    match event.get("method"):
        case "Log.entryAdded":
            entry = event["params"]["entry"]
            return f"{entry['text']} {entry.get('url', '')}"
        case "Runtime.consoleAPICalled":
            return " ".join(str(each.get("value")) for each in event["params"]["args"])
        case "Runtime.exceptionThrown":
            return str(event["params"]["exceptionDetails"])
        case _:
            return ""


@cache
def _browser() -> _Browser:
    browser = _Browser()
    atexit.register(browser.end)
    return browser

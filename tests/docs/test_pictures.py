"""The drawn pictures are legible in light and dark, have a description, and no text is cut off."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.browser import look
from tests.docs.commands import CHECKOUT

PICTURES = sorted((CHECKOUT / "docs").glob("*.svg"))
_SVG = "{http://www.w3.org/2000/svg}"
# A script adds to the page each text that is outside of the picture; `look` returns it.
_CUT = """<script>addEventListener("load", function () {
  const whole = document.querySelector("svg").getBoundingClientRect();
  const cut = [...document.querySelectorAll("svg text")].filter(function (one) {
    const box = one.getBoundingClientRect();
    return box.left < whole.left || box.right > whole.right || box.top < whole.top || box.bottom > whole.bottom;
  });
  document.getElementById("cut").textContent = "cut: " + cut.map(one => one.textContent).join(", ") + ".";
});</script><p id="cut"></p>"""

every_picture = pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)


@every_picture
def test_a_picture_is_told_in_words_and_knows_dark_pages(picture: Path) -> None:
    """It has a title and a description for blind readers; each colour of the light drawing has a dark one."""
    root = ElementTree.parse(picture).getroot()
    assert all((root.findtext(_SVG + name) or "").strip() for name in ("title", "desc"))
    light, dark = (root.findtext(_SVG + "style") or "").split("@media (prefers-color-scheme: dark)")
    coloured = set(re.findall(r"([.\w]+) \{[^}]*#", light))
    assert coloured == set(re.findall(r"([.\w]+) \{[^}]*#", dark.partition("{")[2]))
    assert coloured


@every_picture
def test_no_text_of_a_picture_is_cut_off(picture: Path, tmp_path: Path) -> None:
    """In a browser, each text is completely inside."""
    page = f"<!doctype html><body>{picture.read_text()}{_CUT}"
    assert "cut: ." in look(page, tmp_path, width=1000)["text"]

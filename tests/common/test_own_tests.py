"""Each module of `ts_common` has a test module of its own, in the same folder and with its name."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CODE = TESTS.parents[1] / "ts_common"
# The parts of a codec have one interface, the codec: the tests of this room are by language and by source of schemas.
BY_SUBJECT = {"schemas"}
MODULES = sorted(
    path.relative_to(CODE)
    for path in CODE.rglob("*.py")
    if path.name != "__init__.py" and path.relative_to(CODE).parts[0] not in BY_SUBJECT
)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_a_module_has_a_test_module_of_its_own(module: Path) -> None:
    """A reader finds the tests of a module without a search, and a module without tests is noticed."""
    own = TESTS / module.parent / f"test_{module.name}"
    assert own.is_file(), f"ts_common/{module} has no tests: write tests/common/{own.relative_to(TESTS)}"
    assert "\ndef test_" in own.read_text()

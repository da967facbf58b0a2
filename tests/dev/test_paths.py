"""The files of the checkout that the modules of `dev` name."""

import importlib
import pkgutil
from pathlib import Path

import dev.bench.measuring
import dev.local

CHECKOUT = Path(dev.local.__file__).parents[2]


def test_each_file_that_a_module_of_dev_names_is_in_the_checkout() -> None:
    """The paths of a module that moves must move with it, those too that `make test-full` alone reads."""
    rooms = [(dev.local, "dev.local."), (dev.bench.measuring, "dev.bench.measuring.")]
    modules = [module.name for room, prefix in rooms for module in pkgutil.walk_packages(room.__path__, prefix)]
    named = {
        f"{module}.{name}": value
        for module in modules
        for name, value in vars(importlib.import_module(module)).items()
        if isinstance(value, Path) and value.is_relative_to(CHECKOUT) and not value.is_relative_to(CHECKOUT / "build")
    }
    assert {name for name, path in named.items() if not path.exists()} == set()
    assert "dev.local.kafka.kerberos._REQUIREMENTS" in named

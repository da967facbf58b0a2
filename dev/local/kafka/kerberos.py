"""A real Kerberos on loopback: MIT's KDC from Debian's packages, and the Python module `kerberos`, built against them.

    realm = Kerberos(directory, logs)          a Server (start, stop, kill, pause, resume, restart) and
      keytab(name)                             the path of a new principal's keytab
      configuration                            the path of `krb5.conf`, for JVMs (-Djava.security.krb5.conf)
      environment()                            variables for MIT's library: KRB5_CONFIG, and where `kerberos` is

`python -m dev.local.kafka.kerberos` fetches and builds it, so that a later start needs no network.

Nothing is installed: all of it lies below `build/`. The module is compiled, which needs gcc and Python's headers.
"""

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from dev.local.debian import unpacked
from dev.local.jars import BUILD, build_once, run
from dev.local.ports import LOOPBACK, free_port
from dev.local.process import Server

REALM = "TEST"
_REQUIREMENTS = BUILD.parent / "requirements" / "kerberos.txt"
_KDC = ["krb5-kdc", "krb5-admin-server"]
# Also where they are installed: the headers' libraries are links to files next to them.
_LIBRARIES = ["libgssapi-krb5-2", "libkrb5-3", "libk5crypto3", "libkrb5support0", "libcom-err2"]
_HEADERS = ["libkrb5-dev", "krb5-multidev", "comerr-dev"]
_CONFIGURATION = """\
[libdefaults]
 default_realm = {realm}
 dns_lookup_kdc = false
 dns_canonicalize_hostname = false
 rdns = false
 udp_preference_limit = 1
[realms]
 {realm} = {{
  kdc = {host}:{port}
 }}
[dbmodules]
 db_module_dir = {plugins}
"""
_KDC_CONFIGURATION = """\
[kdcdefaults]
 kdc_listen = {host}:{port}
 kdc_tcp_listen = {host}:{port}
[realms]
 {realm} = {{
  database_name = {directory}/principal
  key_stash_file = {directory}/stash
  max_life = 1h
 }}
[logging]
 kdc = STDERR
"""


def debian_root() -> Path:
    """Return the directory with the KDC, its libraries and headers, fetched if need be.

    Raises:
        ToolMissingError: there is no apt to fetch them with, or it finds no such packages.
        BuildFailedError: apt or dpkg ended with an error.
    """
    return unpacked("krb5", [*_KDC, *_LIBRARIES, *_HEADERS], "MIT's Kerberos")


def kerberos_module() -> Path:
    """Return the directory with the Python module `kerberos`, built from the locked sources if need be.

    Raises:
        ToolMissingError: as `debian_root`.
        BuildFailedError: pip or the compiler ended with an error.
    """
    lines = _REQUIREMENTS.read_text().partition("\nkerberos==")[2].partition("\npure-sasl")[0]
    wanted = f"kerberos=={lines}"
    made_from = f"{sys.version}\n{wanted}".encode()
    return build_once(BUILD / "kerberos-module", made_from, partial(_build, wanted, debian_root()))


def _build(wanted: str, root: Path, directory: Path) -> None:
    (directory / "requirements.txt").write_text(wanted)
    headers = [root / "usr" / "include", root / "usr" / "include" / "mit-krb5"]
    settings = {
        "CPATH": ":".join(map(str, headers)),
        "LIBRARY_PATH": _library_path(root),
        "PATH": f"{root / 'usr' / 'bin'}:{os.environ['PATH']}",
    }
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--target", str(directory)]
    run(["env", *(f"{name}={value}" for name, value in settings.items()), *pip, "-r", f"{directory}/requirements.txt"])


def _library_path(root: Path) -> str:
    # One machine has packages of one architecture.
    return ":".join(str(path) for each in ("usr/lib", "lib") for path in sorted((root / each).glob("*-linux-gnu")))


class Kerberos(Server):
    """A realm of its own, `TEST`, with one KDC on a free port.

    Args:
        logs: directory of its log.
    """

    def __init__(self, directory: Path, logs: Path) -> None:
        super().__init__("krb5kdc", directory, logs / "krb5kdc.log")
        self.port = free_port()
        self.configuration = directory / "krb5.conf"
        self._root = debian_root()

    def prepare(self) -> None:
        """Write the configuration, and create the database before the first start."""
        (plugins,) = self._root.glob("usr/lib/*/krb5/plugins/kdb")
        facts = {"realm": REALM, "host": LOOPBACK, "port": self.port, "directory": self.directory, "plugins": plugins}
        self.configuration.write_text(_CONFIGURATION.format(**facts))
        (self.directory / "kdc.conf").write_text(_KDC_CONFIGURATION.format(**facts))
        if not (self.directory / "principal").exists():
            self._tool("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def command(self) -> list[str]:
        """Return the command of MIT's KDC, in the foreground."""
        return [str(self._root / "usr" / "sbin" / "krb5kdc"), "-n", "-r", REALM]

    def variables(self) -> Mapping[str, str]:
        """Return the variables of MIT's tools."""
        return {
            "KRB5_CONFIG": str(self.configuration),
            "KRB5_KDC_PROFILE": str(self.directory / "kdc.conf"),
            "LD_LIBRARY_PATH": _library_path(self._root),
        }

    def not_ready(self) -> str | None:
        """Connect."""
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=1.0).close()
        except OSError as error:
            return f"{LOOPBACK}:{self.port}: {error}"
        return None

    def keytab(self, name: str) -> Path:
        """Create a principal with a random key, and return the path of its keytab."""
        path = self.directory / f"{name.replace('/', '-')}.keytab"
        self._tool("kadmin.local", "-r", REALM, "addprinc", "-randkey", name)
        self._tool("kadmin.local", "-r", REALM, "ktadd", "-k", str(path), name)
        return path

    def environment(self) -> dict[str, str]:
        """Return what a process with MIT's library needs."""
        return {"KRB5_CONFIG": str(self.configuration), "PYTHONPATH": str(kerberos_module())}

    def _tool(self, name: str, *arguments: str) -> None:
        subprocess.run(
            [str(self._root / "usr" / "sbin" / name), *arguments],
            env={**os.environ, **self.variables()},
            check=True,
            capture_output=True,
            timeout=60,
        )


if __name__ == "__main__":
    print(f"Kerberos: {debian_root()} and {kerberos_module()}")

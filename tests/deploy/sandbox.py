"""Run a command as a unit below deploy does, as far as possible without systemd as the first process.

    python -m tests.deploy.sandbox disks|calls UNIT COMMAND...

disks   the whole tree read-only, in a mount namespace, as with ProtectSystem=strict; needs root
calls   without the system calls that the unit forbids

The unit's system calls, address families and namespaces become one seccomp filter by libseccomp, as in systemd
(src/shared/seccomp-util.c). One thing differs: a forbidden call ends the process here. With the unit's EPERM a program
might continue without the call, and the test would not fail. MemoryDenyWriteExecute is the kernel's own
prctl(PR_SET_MDWE), from Linux 6.3 on, which applies to ctypes and everything else that maps memory.
"""

import ctypes
import ctypes.util
import errno
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path

from dev.local.systemd import analyze

_CLONE_NEWNS = 0x20000
_MS_REC_PRIVATE = 0x4000 | (1 << 18)
_MOUNT_SETATTR = 442  # the same on every architecture
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_RDONLY = 1
_PR_SET_NO_NEW_PRIVS, _PR_SET_MDWE = 38, 65
_MDWE_REFUSE_EXEC_GAIN = 1
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000  # SCMP_ACT_ALLOW, _KILL_PROCESS, _ERRNO
_FAMILIES = 46  # AF_MAX
_EQ, _MASKED_EQ = 4, 7
_NAMESPACES = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000  # mnt to net


class _Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp`."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def settings(unit: Path) -> dict[str, list[str]]:
    """Return the settings of a unit's file: each key with its values in order."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().replace("\\\n", " ").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def allowed_calls(filters: Iterable[str]) -> frozenset[str]:
    """Return the system calls that a list of `SystemCallFilter=` allows: sets and names, without those after `~`.

    systemd.exec(5): if the first line has no `~`, the list names what is allowed.
    """
    lines = list(filters)
    if not lines or lines[0].startswith("~"):
        raise ValueError("the unit names what is forbidden, not what is allowed")
    names: set[str] = set(_members("@default"))
    for line in lines:
        given = {name for word in line.removeprefix("~").split() for name in _members(word)}
        names = names - given if line.startswith("~") else names | given
    return frozenset(names)


def _members(word: str) -> frozenset[str]:
    """Return the calls of a set, as this machine's systemd defines it."""
    if not word.startswith("@"):
        return frozenset({word})
    said = analyze("syscall-filter", word)
    if said.returncode:
        raise ValueError(said.stderr)
    words = [line.strip() for line in said.stdout.splitlines() if line.startswith(" ") and "#" not in line]
    return frozenset(name for each in words for name in _members(each))


def read_only(unit: Path) -> None:
    """Remount all that this process sees read-only, as the unit does."""
    if settings(unit)["ProtectSystem"] != ["strict"]:
        raise ValueError("the unit leaves the disks as they are")
    libc = ctypes.CDLL(None, use_errno=True)
    _checked(libc.unshare(_CLONE_NEWNS), "unshare")
    _checked(libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_PRIVATE), None), "mount")
    attributes = (ctypes.c_uint64 * 4)(_RDONLY, 0, 0, 0)  # struct mount_attr: set, clear, propagation, user namespace
    answer = libc.syscall(
        _MOUNT_SETATTR, _AT_FDCWD, b"/", _AT_RECURSIVE, ctypes.byref(attributes), ctypes.sizeof(attributes)
    )
    _checked(answer, "mount_setattr")


def confine(unit: Path) -> None:
    """Apply the unit's restrictions to this process."""
    said = settings(unit)
    libc = ctypes.CDLL(None, use_errno=True)
    calls = allowed_calls(said["SystemCallFilter"])
    _checked(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    if said.get("MemoryDenyWriteExecute") == ["yes"]:
        _checked(libc.prctl(_PR_SET_MDWE, _MDWE_REFUSE_EXEC_GAIN, 0, 0, 0), "PR_SET_MDWE (Linux 6.3)")
    _filter(calls, said["RestrictAddressFamilies"][0].split(), said["RestrictNamespaces"] == ["yes"])


def _filter(calls: Iterable[str], families: Iterable[str], restricts_namespaces: bool) -> None:
    library = ctypes.CDLL(ctypes.util.find_library("seccomp") or "libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_KILL)))

    def rule(action: int, name: str, *comparisons: _Comparison) -> None:
        number = library.seccomp_syscall_resolve_name(name.encode())
        array = (_Comparison * max(1, len(comparisons)))(*comparisons)
        answer = library.seccomp_rule_add_array(context, ctypes.c_uint32(action), number, len(comparisons), array)
        # Calls of other architectures have negative numbers here, and need no rule.
        if answer not in {0, -errno.EDOM, -errno.EINVAL, -errno.EACCES}:
            raise OSError(-answer, f"{name}: {os.strerror(-answer)}")

    numbers = {getattr(socket, family) for family in families}
    for name in calls:
        if name == "socket":  # rejected families get an error: glibc, for one, continues without them
            for number in range(_FAMILIES):
                action = _ALLOW if number in numbers else _ERRNO | errno.EAFNOSUPPORT
                rule(action, name, _Comparison(0, _EQ, number, 0))
        elif name in {"unshare", "setns", "clone3"} and restricts_namespaces:
            continue
        elif name == "clone" and restricts_namespaces:
            rule(_ALLOW, name, _Comparison(0, _MASKED_EQ, _NAMESPACES, 0))
        else:
            rule(_ALLOW, name)
    # As systemd: the flags of clone3 are in memory, which no filter can read. With ENOSYS the C library uses `clone`.
    if restricts_namespaces:
        rule(_ERRNO | errno.ENOSYS, "clone3")
    _checked(library.seccomp_load(context), "seccomp_load")
    library.seccomp_release(context)


def _checked(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno() or -answer
        raise OSError(number, f"{what}: {os.strerror(number)}")


def main() -> None:
    """Restrict this process and execute the command."""
    kind, unit, *command = sys.argv[1:]
    {"disks": read_only, "calls": confine}[kind](Path(unit))
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()

"""How keys are called where they are files: what the drivers for directories and for HDFS have in common.

No key meets a file of a driver's own, or one that something else hides there (NFS's `.nfs...`): theirs begin with one
dot, and a part of a key that begins with one gets another before it.
"""

WRITING = ".put-"  # a put that goes on, or that was killed


def file_name(key: str) -> str:
    """A key, or the directory that it begins with, as it is called below the root."""
    return "/".join(f".{part}" if part.startswith(".") else part for part in key.split("/"))


def part_of(name: str) -> str:
    """The part of a key that a file name stands for; empty where it stands for none."""
    part = name.removeprefix(".")
    return part if part == name or (part.startswith(".") and part != "..") else ""


def is_asked_for(found: str, prefix: str, start_after: str) -> bool:
    """Whether a key, or some key below a directory, is part of a listing."""
    if found.endswith("/"):
        within = found.startswith(prefix) or prefix.startswith(found)
        return within and (found > start_after or start_after.startswith(found))
    return found.startswith(prefix) and found > start_after

"""Map keys to file names, for the drivers of directories and of HDFS.

Files of a driver, and hidden files of others (NFS's `.nfs...`), begin with one dot. If a part of a key begins with a
dot, its file name has a second one, so no key has the name of such a file.
"""

WRITING = ".put-"  # prefix of the file of a put that is running, or was killed


def file_name(key: str) -> str:
    """Return the path of a key, or of a directory of keys, below the root."""
    return "/".join(f".{part}" if part.startswith(".") else part for part in key.split("/"))


def part_of(name: str) -> str:
    """Return the part of a key that has this file name; empty if no part has it."""
    part = name.removeprefix(".")
    return part if part == name or (part.startswith(".") and part != "..") else ""


def belongs_to_listing(found: str, prefix: str, start_after: str) -> bool:
    """Return whether a key, or some key below a directory, belongs to a listing."""
    if found.endswith("/"):
        within = found.startswith(prefix) or prefix.startswith(found)
        return within and (found > start_after or start_after.startswith(found))
    return found.startswith(prefix) and found > start_after

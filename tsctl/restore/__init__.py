"""A lost cluster back as files, at its original offsets: the steps of `tsctl restore`.

`documents.py` has what the steps hand to each other: the plan, and the records of what is done. `planning.py` makes the
plan from the archive. `fetching.py` writes the files of one partition next to its place, `hosts.py` does so for a host
and moves them into place. `new_cluster.py` is the only module that talks to the new cluster, and `mirror.py` uses it to
let MirrorMaker copy the records instead.

No step starts or stops a broker. Each can be repeated after a kill.
"""

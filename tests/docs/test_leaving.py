"""docs/upgrade.md, "Leaving": what its commands remove, and what they leave."""

import re
from fnmatch import fnmatchcase
from pathlib import Path

from tests.docs.commands import CHECKOUT, Shell, blocks, commands
from tests.made_archive import MadeArchive, batches
from ts_common.archive.layout import Layout
from ts_common.archive.object_keys import ClusterKeys, SegmentName
from ts_common.model import TopicPartition

PAGE = CHECKOUT / "docs/upgrade.md"
INSTALLED = CHECKOUT / "docs/deploy.md"


def test_the_agent_is_removed_and_its_archive_and_the_broker_stay(tmp_path: Path) -> None:
    """Each directory that the installation makes is removed; the commands of systemd and of users are stand-ins."""
    programs, host = tmp_path / "bin", tmp_path / "host"
    programs.mkdir()
    for name in ("systemctl", "userdel"):
        (programs / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/called\n')
        (programs / name).chmod(0o755)
    (install,) = blocks(INSTALLED, "Install", language="sh")
    made = set(re.findall(r"(/opt/ts-uploader|/etc/ts-uploader|/etc/systemd/system)", install.text))
    assert made == {"/opt/ts-uploader", "/etc/ts-uploader", "/etc/systemd/system"}
    for place in ("opt/ts-uploader/0.1.0", "etc/ts-uploader/conf", "etc/systemd/system", "etc/kafka", "var/lib/kafka"):
        (host / place).mkdir(parents=True)
    for unit in ("ts-uploader.service", "kafka.service"):
        (host / "etc/systemd/system" / unit).touch()
    archive = MadeArchive(tmp_path / "store")
    archive.put_segment("t", 0, batches((0, 5)))
    Shell(tmp_path, {"/opt": f"{host}/opt", "/etc": f"{host}/etc"}, programs).run(
        *blocks(PAGE, "Remove the agent", language="sh")
    )
    left = {str(path.relative_to(host)) for path in host.rglob("*")}
    assert left == {
        *("opt", "etc", "etc/kafka", "etc/systemd", "etc/systemd/system", "var", "var/lib", "var/lib/kafka")
    } | {"etc/systemd/system/kafka.service"}
    called = (tmp_path / "called").read_text().splitlines()
    assert called == ["systemctl disable --now ts-uploader", "systemctl daemon-reload", "userdel ts-uploader"]
    assert archive.store.head(archive.partition("t").segment(SegmentName(0))).size > 0


def test_the_patterns_of_a_deletion_match_one_cluster_alone(tmp_path: Path) -> None:
    """Objects of other clusters, and a topic with the cluster's name, are not matched."""
    (block,) = blocks(PAGE, "Delete an archive")
    settings = dict(re.findall(r"^(\w+)='?([^'\n]+)'?$", block.text, re.MULTILINE))
    (command,) = (each for each in commands(block) if each.startswith("aws s3 rm "))
    assert " --dryrun --exclude '*' " in command
    patterns = [
        re.sub(r"\$(\w+)", lambda name: settings[name[1]], text) for text in re.findall(r'--include "([^"]+)"', command)
    ]
    keys: dict[str, set[str]] = {}
    for cluster, topic in (("prod", "t"), ("prod-2", "t"), ("other", "prod"), ("other", "prod-0")):
        store = MadeArchive(tmp_path / f"{cluster}-{topic}").store
        for cluster_keys in (ClusterKeys(cluster, 5), ClusterKeys(cluster)):
            for number in range(20):
                store.put(cluster_keys.partition(TopicPartition(topic, number)).commit, b"")
            store.put(cluster_keys.incarnations(topic), b"")
            store.put(cluster_keys.layout, Layout(5, cluster, 0).encode())
            store.put(cluster_keys.hold("case"), b"")
        keys.setdefault(cluster, set()).update(info.key for info in store.list())
    matched = {key for each in keys.values() for key in each if any(fnmatchcase(key, pattern) for pattern in patterns)}
    assert matched == keys["prod"]

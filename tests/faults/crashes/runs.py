"""Agents that are killed or paused at a step of the protocol: a PUT that their proxy sees."""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from dev.local.agent import AgentProcess
from dev.local.process import ServerNotRunningError
from dev.local.proxy.s3 import DropRequest, Request, S3FaultProxy
from tests.faults.store_faults import key_of
from tests.uploader.beside import Archive
from ts_common.archive.object_keys import CLUSTER_DIRECTORY, PROBE_NAME

Moment = Literal["before", "after"]
Fate = Literal["kill", "pause"]

_LOOK_EVERY_SECONDS = 0.02


@dataclass(frozen=True, order=True)
class Step:
    """One PUT of the protocol, independent of the agent's history.

    Attributes:
        directory: of the partition, or of the topic.
        name: of the object.
        first: whether its condition is that the object is absent (`If-None-Match`); distinguishes a first commit.
    """

    directory: str
    name: str
    first: bool

    @property
    def kind(self) -> str:
        """The kind of object, without the partition and the base offset."""
        name = re.sub(r"\d{20}", "<base>", self.name)
        return f"{name} first" if self.first else name

    def __str__(self) -> str:
        return f"{self.directory}/{self.name}{' (first)' if self.first else ''}"


def step_of(archive: Archive, request: Request) -> Step | None:
    """Return the step of a request; None if it is no step. Objects of the whole cluster belong to no partition."""
    key = key_of(archive, request)
    if request.method != "PUT" or key in {"", PROBE_NAME} or key.startswith(CLUSTER_DIRECTORY):
        return None
    *_, directory, name = key.split("/")
    return Step(directory, name, "if-none-match" in request.headers)


class Victim:
    """An agent behind its own proxy, which strikes once in each of the agent's processes, at a wanted step.

    "before": the store never receives the PUT. "after": the store has answered, but the agent has no answer.

    Attributes:
        met: the steps when it was struck, with those that were under way at the same moment.
        struck: set once it was struck, until its next life.

    Args:
        archive: that it ships to.
        proxy: of this agent only.
        moment: of the step.
        fate: kill or pause.
        wanted: called with each step and those met so far; returns whether to strike.
    """

    def __init__(
        self,
        archive: Archive,
        proxy: S3FaultProxy,
        moment: Moment,
        wanted: Callable[[Step, frozenset[Step]], bool],
        fate: Fate = "kill",
    ) -> None:
        self.met: frozenset[Step] = frozenset()
        self.struck = threading.Event()
        self._archive = archive
        self._proxy = proxy
        self._wanted = wanted
        self._moment = moment
        self._fate = fate
        self._up = threading.Event()  # no PUT continues before the agent answers
        self._life = 0  # a PUT of an earlier life is dropped
        self._lock = threading.Lock()  # guards `met`, and lets one strike at a time
        self._agent: AgentProcess | None = None
        proxy.before(self._before)
        proxy.after(self._after)

    @property
    def agent(self) -> AgentProcess:
        """Return the agent in its present life."""
        assert self._agent is not None
        return self._agent

    def live(self) -> AgentProcess:
        """Begin a life: start the agent, or resume it."""
        self.struck.clear()
        try:
            if self._agent is None:
                self._agent = self._archive.agent(environment=self._proxy.environment())
            elif self._agent.alive and self._agent.paused:
                self._agent.resume()
            else:
                self._agent.start()
        finally:
            self._up.set()
        return self._agent

    def _before(self, request: Request) -> None:
        step = step_of(self._archive, request)
        if step is None:
            return
        life = self._life
        while not self._up.wait(_LOOK_EVERY_SECONDS):
            if self.struck.is_set() or life != self._life:
                break
        with self._lock:
            if life != self._life or (self.struck.is_set() and self._fate == "kill"):
                raise DropRequest  # of a dead agent
            if self._moment == "before" and not self.struck.is_set() and self._wanted(step, self.met):
                self._strike(step)
                raise DropRequest

    def _after(self, request: Request) -> None:
        step = step_of(self._archive, request)
        if step is None or self._moment != "after" or request.server_status != 200:
            return
        with self._lock:
            if not self.struck.is_set() and self._wanted(step, self.met):
                self._strike(step)
            elif self.struck.is_set() and self._fate == "kill":
                self.met |= {step}  # it had reached the store when the agent died

    def _strike(self, step: Step) -> None:
        with suppress(ServerNotRunningError):
            if self._fate == "kill":
                self._up.clear()
                self._life += 1
                self.agent.kill()
            else:
                self.agent.pause()
        self.met |= {step}
        self.struck.set()

"""The end of a process."""

from dev.local.agent import AgentProcess


def exit_status(agent: AgentProcess, seconds: float) -> int:
    """Return the exit code of an agent, once it has ended."""
    process = agent._process
    assert process is not None
    return int(process.wait(seconds))

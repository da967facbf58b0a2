"""How a process ended."""

from ts_local.agent import AgentProcess


def exit_status(agent: AgentProcess, seconds: float) -> int:
    """How an agent ended, once it has."""
    process = agent._process
    assert process is not None
    return int(process.wait(seconds))

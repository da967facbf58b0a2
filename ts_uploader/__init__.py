"""The agent beside a broker: ships closed segments and commits how far it came."""

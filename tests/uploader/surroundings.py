"""An environment provider of a user's own, for `--environment-provider`."""

from dataclasses import replace

from ts_uploader.environment import Environment, EnvironmentProvider, ServerPropertiesEnvironment


class Renamed(EnvironmentProvider):
    """The broker's own file, under another cluster id."""

    def load(self) -> Environment:
        """See the contract."""
        return replace(ServerPropertiesEnvironment(self.server_properties, None).load(), cluster_id="renamed")

"""A provider of endpoints with two locations, as an operator writes one: topic `clicks` has its own."""

from ts_common.endpoints.provider import EndpointProvider


class TwoLocations(EndpointProvider):
    """Locations below the directory of the properties file."""

    def location(self, topic: str) -> str:
        """Return the URL of the topic's directory."""
        return f"file://{self.config_dir}/{'clicks' if topic == 'clicks' else 'others'}"

    def locations(self) -> frozenset[str]:
        """Return both."""
        return frozenset({self.location("clicks"), self.location("orders")})

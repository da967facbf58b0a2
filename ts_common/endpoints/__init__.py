"""Where each topic's objects go: `EndpointProvider` is what an operator's own class implements."""

from ts_common.endpoints.provider import EndpointProvider

__all__ = ["EndpointProvider"]

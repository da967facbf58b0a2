"""The store of each topic: `EndpointProvider` is the class that an operator's own provider extends."""

from ts_common.endpoints.provider import EndpointProvider

__all__ = ["EndpointProvider"]

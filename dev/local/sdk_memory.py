"""Let the AWS SDK remember what it computes for each client: tests open thousands, and each costs 16 ms of CPU.

For each client the SDK reads the rules of its endpoints, names of events and signatures of hooks again, and for each
session its descriptions of services. All of this depends on the SDK's files and code alone.
"""

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from botocore import endpoint_provider, hooks, session

sdk_hooks: Any = hooks
sdk_session: Any = session
sdk_endpoints: Any = endpoint_provider


@cache
def remember() -> None:
    """Change the SDK in this process: half of a client's time, and all but 4 ms of a session of boto3."""
    sdk_endpoints.RuleSet = _rules_read_once(sdk_endpoints.RuleSet)
    sdk_hooks.EventAliaser._alias_event_name = _names_found_once(sdk_hooks.EventAliaser._alias_event_name)
    sdk_hooks.accepts_kwargs = _accepts_kwargs(sdk_hooks.accepts_kwargs)
    sdk_session.create_loader = cache(sdk_session.create_loader)


def _rules_read_once(read: Callable[..., Any]) -> Callable[..., Any]:
    kept: dict[int, tuple[object, Any]] = {}

    def rule_set(*, rules: object, **others: Any) -> Any:
        if id(rules) not in kept:  # an id is of one object for as long as that is kept
            kept[id(rules)] = rules, read(rules=rules, **others)
        return kept[id(rules)][1]

    return rule_set


def _names_found_once(find: Callable[[Any, str], str]) -> Callable[[Any, str], str]:
    kept: dict[str, str] = {}

    def name_of(aliaser: Any, name: str) -> str:
        if name not in kept:
            kept[name] = find(aliaser, name)
        return kept[name]

    return name_of


def _accepts_kwargs(inspected: Callable[[Any], object]) -> Callable[[Any], object]:
    def accepts(function: Any) -> object:
        code = getattr(function, "__code__", None)
        return inspected(function) if code is None else code.co_flags & inspect.CO_VARKEYWORDS

    return accepts

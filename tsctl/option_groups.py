"""The name that `tsctl restore` imports."""

from ts_common.option_groups import with_groups

__all__ = ["with_groups"]

"""The fuse: what one run deletes at most. Pure."""

from dataclasses import dataclass

from ts_common.wording import counted


@dataclass(frozen=True, slots=True)
class Fuse:
    """The most that one run deletes.

    Attributes:
        objects: number of objects; None for no limit.
        bytes: of these objects; None for no limit.
        share: of the bytes of all segments that were surveyed, 0 to 1; None for no limit.
    """

    objects: int | None = None
    bytes: int | None = None
    share: float | None = None

    def blown(self, objects: int, size: int, whole: int | None = None) -> str | None:
        """Return which limit a number of objects exceeds, as a sentence's end; None if it exceeds no limit.

        Args:
            objects: number of objects.
            size: bytes of these objects.
            whole: bytes of all segments; None if unknown.
        """
        if self.objects is not None and objects > self.objects:
            return f"{counted(objects, 'object')} are due, and the fuse is {self.objects:,}"
        if self.bytes is not None and size > self.bytes:
            return f"{size:,} bytes are due, and the fuse is {self.bytes:,}"
        if self.share is not None and whole and size > self.share * whole:
            return f"{size / whole:.0%} of the bytes are due, and the fuse is {self.share:.0%}"
        return None

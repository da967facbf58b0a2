"""Readers that tests use as bodies."""

import io


class FailingBody(io.BytesIO):
    """A reader whose disk fails at its second read."""

    reads = 0

    def read(self, size: int | None = -1, /) -> bytes:
        self.reads += 1
        if self.reads > 1:
            raise OSError(5, "Input/output error")
        return super().read(1 if size is None or size < 0 else min(size, 1))

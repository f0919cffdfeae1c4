"""What a measurement gives, and how it is shown."""

from __future__ import annotations

from typing import NamedTuple


class Figure(NamedTuple):
    """A row of the report; one without a limit is there to be seen."""

    what: str
    measured: str
    limit: str = "-"
    kept: bool | None = None

    def cells(self) -> tuple[str, str, str, str]:
        """The row as it is printed."""
        return self.what, self.measured, self.limit, {True: "yes", False: "NO", None: "-"}[self.kept]

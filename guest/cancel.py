"""A flag by which a caller stops a load, a prompt or a generation between two chunks or submits."""

from .errors import Cancelled


class Cancel:
    """`cancel()` may be called from a callback, another task or another thread."""

    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def check(self, doing: str) -> None:
        """Raises: Cancelled when `cancel` was called."""
        if self.cancelled:
            raise Cancelled(f"cancelled while {doing}")

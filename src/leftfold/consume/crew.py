"""The consumers that run in one process, each in a thread of its own."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Sequence

from leftfold import clock
from leftfold.consume.consuming import Consuming
from leftfold.consume.progress import ConsumerProgress
from leftfold.errors import LeftfoldError, RunError

_LOOK_S = 0.2


class ConsumerCrew:
    """Runs consumers until they are stopped, have caught up, or have failed. One that fails does not end the others."""

    def __init__(self, consumings: Sequence[Consuming]) -> None:
        self._consumings = consumings

    @property
    def progress(self) -> list[ConsumerProgress]:
        return [consuming.progress for consuming in self._consumings]

    def stop(self) -> None:
        """Ask all consumers to end. Calls under way may finish within their `drain`."""
        for consuming in self._consumings:
            consuming.stop()

    def run(self, look: Callable[[list[ConsumerProgress]], None] = lambda _: None) -> list[ConsumerProgress]:
        """Run until all have ended. `look` is called about five times a second. A failed consumer has an `error`."""
        threads = [
            # Daemons: a handler that never returns must not keep the process from ending.
            threading.Thread(target=_run, args=(c,), name=f"leftfold-consume-{c.progress.consumer}", daemon=True)
            for c in self._consumings
        ]
        for thread in threads:
            thread.start()
        try:
            while any(thread.is_alive() for thread in threads):
                look(self.progress)
                deadline = clock.monotonic() + _LOOK_S
                for thread in threads:
                    thread.join(max(0.0, deadline - clock.monotonic()))
        finally:
            self.stop()
        look(self.progress)
        return self.progress


def _run(consuming: Consuming) -> None:
    try:
        consuming.run()
    except LeftfoldError:
        pass  # `run` has noted it in the progress
    except Exception as error:  # noqa: BLE001 # a fault of ours: the thread must not end without a word
        consuming.progress.state = "failed"
        consuming.progress.error = RunError(
            "consumer-ended",
            f"consumer {consuming.progress.consumer} ended by an error that Leftfold did not expect",
            why=f"{type(error).__name__}: {error}",
            state="what was handled and not committed is handled again",
            fix="start it again; report it if it happens again: details has the trace",
            retriable=True,
            details={"trace": traceback.format_exc()},
        )
